package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// replay is the second act: an operator looks at the dead letters, the consumer is
// repaired, one letter is replayed by its number and the others by their key. It
// returns when all of them have succeeded and the ledger says so.
func (d *demo) replay(ctx context.Context, c *cluster, s *story, on stage, replayer *child, binary string) error {
	api, err := replayer.await(ctx, replayer.api)
	if err != nil {
		return err
	}
	if _, err := replayer.awaitReady(ctx, partitions); err != nil {
		return err
	}
	d.print.note("\n%s\n  ready, REDRIVE_URL=http://%s\n", d.print.paint(bold, "$ dlt-replayer serve"), api)
	o := operator{binary: binary, url: "http://" + api, environ: append(slices.Clone(c.environ), "REDRIVE_URL=http://"+api), print: d.print}

	wanted := s.letters()
	found, err := o.awaitLetters(ctx, len(wanted), "dead")
	if err != nil {
		return err
	}
	if err := o.run(ctx, "list", "--state", "dead"); err != nil {
		return err
	}
	if err := o.run(ctx, "groups", "--state", "dead"); err != nil {
		return err
	}

	d.print.note("\n%s\n", d.print.paint(bold, "The consumer is repaired: it has learned sku, and the payment service answers."))
	ended := s.repair()
	one, known := found[wanted["can not be read"]]
	if !known {
		return errors.New("the ledger does not know the order that can not be read")
	}
	if err := o.run(ctx, "replay", strconv.FormatInt(one, 10), "--reason", "the consumer knows sku", "--yes"); err != nil {
		return err
	}
	if err := d.trigger(ctx, c, s); err != nil {
		return err
	}
	if err := on.await(ctx, ended); err != nil {
		return err
	}
	if _, err := o.awaitLetters(ctx, len(wanted), "replayed", "succeeded"); err != nil {
		return err
	}
	if err := o.run(ctx, "jobs", "list"); err != nil {
		return err
	}
	return o.run(ctx, "list")
}

// trigger asks for all letters of a key by a record, as a program in any language
// can.
func (d *demo) trigger(ctx context.Context, c *cluster, s *story) error {
	topic := c.topic.ReplayTrigger()
	d.print.note("\n%s\n", d.print.paint(bold, fmt.Sprintf(`$ printf '%s\t' | kcat -P -b %s -t %s -K '\t' -H 'redrive-reason-text=payment is back'`, customer, c.brokers[0], s.name(topic))))
	r := &kgo.Record{
		Topic:   topic,
		Key:     []byte(customer),
		Headers: []kgo.RecordHeader{{Key: "redrive-reason-text", Value: []byte("payment is back")}},
	}
	if err := c.client.ProduceSync(ctx, r).FirstErr(); err != nil {
		return fmt.Errorf("ask for the replay of %s: %w", customer, err)
	}
	return nil
}

// operator runs commands against the API of a dlt-replayer, and shows them.
type operator struct {
	binary, url string
	environ     []string
	print       *printer
}

// run shows a command and what it answers.
func (o operator) run(ctx context.Context, args ...string) error {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = a
		if strings.Contains(a, " ") {
			shown[i] = "'" + a + "'"
		}
	}
	line := "dlt-replayer " + strings.Join(shown, " ")
	cmd := command(ctx, o.binary, o.environ, args...)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	o.print.note("\n%s\n%s", o.print.paint(bold, "$ "+line), indent(string(out)))
	return nil
}

// awaitLetters returns the numbers of the letters by their message ids, once the
// ledger has so many in one of these states, and no others.
func (o operator) awaitLetters(ctx context.Context, n int, states ...string) (map[string]int64, error) {
	var answer struct {
		Letters []struct {
			ID        int64  `json:"id"`
			MessageID string `json:"messageId"`
			State     string `json:"state"`
		} `json:"letters"`
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := getJSON(ctx, o.url+"/api/v1/letters?"+url.Values{"limit": {"100"}}.Encode(), &answer)
		found := map[string]int64{}
		for _, l := range answer.Letters {
			if slices.Contains(states, l.State) {
				found[l.MessageID] = l.ID
			}
		}
		if err == nil && len(found) == n && len(answer.Letters) == n {
			return found, nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("the ledger has %d letters, %d of %d are %s", len(answer.Letters), len(found), n, strings.Join(states, " or ")), err)
		}
	}
}
