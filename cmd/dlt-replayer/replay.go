package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// replay is the command line of a replay.
type replay struct {
	c *cli
	filter
	consent

	fromFile     string
	planFile     string
	planOut      string
	dryRun       bool
	failExcluded bool
	destination  string
	rate         float64
	force        bool
	outOfOrder   bool
	all          bool
	setHeaders   []string
	valueFile    string
	wait, detach bool
}

func (c *cli) replayCommand() *cobra.Command {
	r := &replay{c: c}
	cmd := &cobra.Command{
		Use:   "replay [NUMBER...]",
		Short: "Replay dead letters",
		Long: `replay sends dead letters back to where they came from, or to --destination: those
that are named by their numbers, by --message-id or --from-file, or that the flags
select. Attempts begin anew, and letters of one key keep their order.

It first makes a plan, and shows it: how many letters, where to, and which are left
out and why. Then it asks. Where there is no terminal --count says the number that
is expected, or --yes up to replayer.bulkLimit letters. --dry-run ends there;
--plan-out keeps the plan in a file, and --plan executes such a file as it is.

Without --detach it shows how far it is until the end. An interrupt ends the
watching and not the replay, a second one this command at once.

Exit codes: 0 all were replayed, or with --detach or --dry-run done; 3 some were
not, or with --fail-excluded some are left out; 4 nothing matched; 5 refused, or no
permission; 2 usage; 1 failure; 130 interrupted, and the replay goes on.`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args) },
	}
	r.filter.flags(cmd)
	r.consent.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.fromFile, "from-file", "", "`file` with a message id a line, or the lines of dlt-replayer export; - is the standard input")
	flags.StringVar(&r.planFile, "plan", "", "execute the plan in this `file` as it is")
	flags.StringVar(&r.planOut, "plan-out", "", "write the plan to this `file`")
	flags.BoolVar(&r.dryRun, "dry-run", false, "only show the plan")
	flags.BoolVar(&r.failExcluded, "fail-excluded", false, "do nothing if the plan leaves letters out")
	flags.StringVar(&r.destination, "destination", "", "`topic` that they go to, which topics.yaml must allow")
	flags.Float64Var(&r.rate, "rate", 0, "`number` of letters a second at most; replayer.defaultRate if it is not given")
	flags.BoolVar(&r.force, "force", false, "also those that were replayed or discarded before")
	flags.BoolVar(&r.outOfOrder, "out-of-order", false, "although older letters of their keys stay dead")
	flags.BoolVar(&r.all, "all", false, "all dead letters, where nothing else selects")
	flags.StringArrayVar(&r.setHeaders, "set-header", nil, "replace or add a header of the copies, `name=value`, may be repeated: they are other messages then")
	flags.StringVar(&r.valueFile, "value-file", "", "replace the value of the copies by the content of this `file`; - is the standard input")
	flags.BoolVar(&r.wait, "wait", true, "show how far it is until the end")
	flags.BoolVar(&r.detach, "detach", false, "do not wait for the end")
	return c.WithOutput(cmd, forms()...)
}

func (r *replay) run(cmd *cobra.Command, args []string) error {
	request, err := r.request(cmd, args)
	if err != nil {
		return err
	}
	api, err := r.c.connect()
	if err != nil {
		return command.Usage(cmd, err)
	}
	ctx := cmd.Context()
	plan, err := r.plan(ctx, api, request)
	if err != nil {
		return err
	}
	if r.planOut != "" {
		if err := r.keep(plan); err != nil {
			return err
		}
	}
	if r.dryRun {
		if err := r.c.answer(plan, func(rows *bytes.Buffer) { writePlan(rows, plan) }); err != nil {
			return err
		}
	} else {
		var text bytes.Buffer
		writePlan(&text, plan)
		aligned, err := command.Table(text.Bytes())
		if err != nil {
			return err
		}
		r.c.Talk("%s", aligned)
	}
	excluded := int64(0)
	for _, n := range plan.ExcludedBy {
		excluded += n
	}
	switch {
	case len(plan.Ids) == 0 && excluded == 0:
		r.c.Talk("nothing matched\n")
		return errNothing
	case len(plan.Ids) == 0 && r.dryRun:
		return &refusedError{fmt.Errorf("none of %d letters can be replayed", excluded)}
	case r.failExcluded && excluded > 0:
		r.c.Talk("%d letters are left out, and --fail-excluded is given: nothing was done\n", excluded)
		return errPartial
	case r.dryRun:
		return nil
	}
	for _, w := range plan.Warnings {
		if w.Code == outOfOrder && !r.outOfOrder {
			return &refusedError{fmt.Errorf("%s; replay the older ones as well (--key), or say --out-of-order", w.Detail)}
		}
	}
	return r.submit(cmd, api, request, plan)
}

// outOfOrder is the code of a plan that would overtake older letters.
const outOfOrder = "out_of_order"

// request is what the command line asks for, checked as far as that goes here.
func (r *replay) request(cmd *cobra.Command, args []string) (client.ReplayRequest, error) {
	usage := func(text string) (client.ReplayRequest, error) {
		return client.ReplayRequest{}, command.Usage(cmd, errors.New(text))
	}
	request := client.ReplayRequest{
		Destination: text(r.destination), Force: of(r.force, true), OutOfOrder: of(r.outOfOrder, true),
		Rate: of(cmd.Flags().Changed("rate"), r.rate), Reason: text(r.reason), All: of(r.all, true),
	}
	selects := len(args) > 0 || given(cmd) || r.fromFile != ""
	switch {
	case r.planFile != "" && (selects || r.planOut != "" || r.all):
		return usage("--plan is executed as it is: it excludes letters, filters and --plan-out")
	case r.planFile == "" && !selects && !r.all:
		return usage("nothing is selected: name letters or a filter, or say --all")
	case r.fromFile == "-" && r.valueFile == "-":
		return usage("--from-file and --value-file can not both be the standard input")
	case cmd.Flags().Changed("rate") && r.rate <= 0:
		return usage("--rate: want a number above 0")
	}
	if !r.dryRun {
		if err := r.check(cmd); err != nil {
			return request, err
		}
	}
	edit, err := r.edit()
	if err != nil {
		return request, command.Usage(cmd, err)
	}
	request.Edit = edit
	if r.planFile != "" {
		plan, err := readPlan(r.planFile)
		if err != nil {
			return request, command.Usage(cmd, fmt.Errorf("--plan: %w", err))
		}
		request.Plan = plan
		return request, nil
	}
	selected, err := r.filter.filter(cmd, args, time.Now())
	if err != nil {
		return request, err
	}
	if r.fromFile != "" {
		if err := r.readFile(&selected); err != nil {
			return request, command.Usage(cmd, fmt.Errorf("--from-file: %w", err))
		}
	}
	if !named(selected) && len(selected.State) == 0 && !r.force {
		// A bulk replay is about what is dead. That others are left out needs no saying.
		selected.State = []client.State{client.StateDead}
	}
	request.Filter = &selected
	return request, nil
}

// edit is what the command line changes in the copies; nil is nothing.
func (r *replay) edit() (*client.Edit, error) {
	if len(r.setHeaders) == 0 && r.valueFile == "" {
		return nil, nil //nolint:nilnil // There is none.
	}
	edit := &client.Edit{}
	for _, header := range r.setHeaders {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--set-header %q: want name=value", header)
		}
		edit.SetHeaders = append(edit.SetHeaders, client.NewHeader{Name: name, Value: newBytes([]byte(value))})
	}
	if r.valueFile != "" {
		value, err := r.read(r.valueFile)
		if err != nil {
			return nil, fmt.Errorf("--value-file: %w", err)
		}
		edit.Value = new(newBytes(value))
	}
	return edit, nil
}

func newBytes(b []byte) client.NewBytes {
	if utf8.Valid(b) {
		return client.NewBytes{Text: new(string(b))}
	}
	return client.NewBytes{Base64: new(base64.StdEncoding.EncodeToString(b))}
}

func (r *replay) read(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(r.c.Stdin)
	}
	return os.ReadFile(path)
}

// readFile adds the messages of a file: a line is a message id, or a letter as JSON,
// which is taken by its number.
func (r *replay) readFile(into *client.Filter) error {
	content, err := r.read(r.fromFile)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 64<<20)
	found := 0
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "{"):
			var letter struct {
				ID        int64  `json:"id"`
				MessageID string `json:"messageId"`
			}
			if err := json.Unmarshal([]byte(line), &letter); err != nil {
				return fmt.Errorf("line %d is not JSON: %w", number, err)
			}
			switch {
			case letter.ID > 0:
				into.ID = append(into.ID, letter.ID)
			case letter.MessageID != "":
				into.MessageID = append(into.MessageID, letter.MessageID)
			default:
				return fmt.Errorf("line %d has neither id nor messageId", number)
			}
		default:
			into.MessageID = append(into.MessageID, line)
		}
		found++
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if found == 0 {
		return errors.New("there is no message in it")
	}
	if len(into.ID) > 0 && len(into.MessageID) > 0 {
		return errors.New("it has message ids and letters: a letter would have to be both")
	}
	return nil
}

func readPlan(path string) (*client.Plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	plan := &client.Plan{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(plan); err != nil {
		return nil, fmt.Errorf("%s is not a plan: %w", path, err)
	}
	if plan.Version != 1 {
		return nil, fmt.Errorf("%s is not a plan of this version: version %d", path, plan.Version)
	}
	return plan, nil
}

// plan is the plan that was given, or the one that the server makes.
func (r *replay) plan(ctx context.Context, api *client.ClientWithResponses, request client.ReplayRequest) (*client.Plan, error) {
	if request.Plan != nil {
		return request.Plan, nil
	}
	answer, err := persist(ctx, func(ctx context.Context) (*client.CreatePlanResponse, error) {
		return api.CreatePlanWithResponse(ctx, request)
	})
	if err != nil {
		return nil, fmt.Errorf("plan the replay: %w", err)
	}
	return answer.JSON200, nil
}

// keep writes a plan to a file that people read and programs compare.
func (r *replay) keep(plan *client.Plan) error {
	text, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the plan: %w", err)
	}
	if err := os.WriteFile(r.planOut, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("--plan-out: %w", err)
	}
	r.c.Talk("the plan is in %s\n", r.planOut)
	return nil
}

// excludedShown is how many of the letters that are left out are shown one by one.
const excludedShown = 20

func writePlan(rows *bytes.Buffer, p *client.Plan) {
	fmt.Fprintf(rows, "letters\t%d\n", len(p.Ids))
	counts := func(name string, of map[string]int64) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			fmt.Fprintf(rows, "%s\t%d\t%s\n", name, of[key], cell(key, 100))
		}
	}
	counts("to", p.Destinations)
	counts("from", p.Origins)
	counts("reason", p.Reasons)
	if n := len(p.Ids); p.Rate > 0 && n > 0 {
		took := time.Duration(float64(n) / p.Rate * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(rows, "rate\t%g letters a second, %v in all\n", p.Rate, max(took, time.Second))
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(rows, "warning\t%s: %s\n", w.Code, command.Printable(w.Detail))
	}
	counts("left out", p.ExcludedBy)
	for i, e := range p.Excluded {
		if i == excludedShown {
			fmt.Fprintf(rows, "\tand %d more: see -o json or --plan-out\n", len(p.Excluded)-excludedShown)
			break
		}
		fmt.Fprintf(rows, "\tletter %d, %s: %s\n", e.Letter, e.Reason, command.Printable(e.Detail))
	}
}

// submit has the replay agreed to, creates it and watches it.
func (r *replay) submit(cmd *cobra.Command, api *client.ClientWithResponses, request client.ReplayRequest, plan *client.Plan) error {
	ctx := cmd.Context()
	count := int64(len(plan.Ids))
	if count > 0 { // Of none the server says why, with what was done before.
		limit, err := bulkLimit(ctx, api)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		byName := request.Filter != nil && named(*request.Filter)
		if err := r.c.confirm(cmd, &r.consent, "Replay", count, limit, byName); err != nil {
			return err
		}
		request.Expect = &count
	}
	if request.Plan == nil && plan.UpTo > 0 {
		// What was shown, and no letter that died since.
		request.Filter.UpTo = new(plan.UpTo)
	}
	key := uuid.NewString()
	created, err := repeat(ctx, patient, longPause, func(ctx context.Context) (*client.CreateJobResponse, error) {
		return api.CreateJobWithResponse(ctx, &client.CreateJobParams{IdempotencyKey: &key}, request)
	})
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	job := created.JSON201
	if job == nil {
		job = created.JSON200
	}
	r.c.Talk("job %s\n", job.ID)
	if r.detach || !r.wait {
		if r.c.Output == "table" {
			return r.c.Printf("%s\n", job.ID)
		}
		return r.c.printJob(job)
	}
	return r.c.watch(ctx, api, job.ID)
}
