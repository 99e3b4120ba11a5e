package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

// filter is the filter of a command line: a flag for every column.
type filter struct {
	ids           []int64
	messageIDs    []string
	key, encoding string
	noKey         bool
	topics        []string
	origins       []string
	groups        []string
	reasons       []string
	errorTypes    []string
	errorText     string
	fingerprints  []string
	labels        []string
	states        []string
	job           string
	partition     int32
	offset        int64
	from, to      string
	minAttempt    int32
	maxAttempt    int32
	minDeliveries int32
	upTo          int64
}

// flags adds the flags of the filter. Values of one flag are alternatives, different
// flags must all hold.
func (f *filter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64SliceVar(&f.ids, "id", nil, "`number` of a letter, may be repeated")
	flags.StringArrayVar(&f.messageIDs, "message-id", nil, "`id` of a message, may be repeated")
	flags.StringVar(&f.key, "key", "", "`key` of the record")
	flags.StringVar(&f.encoding, "key-encoding", "text", "`form` of --key: text, base64 or hex")
	flags.BoolVar(&f.noKey, "no-key", false, "records without a key")
	flags.StringArrayVar(&f.topics, "topic", nil, "`topic` of dead letters, may be repeated")
	flags.StringArrayVar(&f.origins, "origin", nil, "`topic` that the record came from, may be repeated")
	flags.StringArrayVar(&f.groups, "group", nil, "consumer `group` that failed it, may be repeated")
	flags.StringSliceVar(&f.reasons, "dead-reason", nil, "`reason` of its death: poison, permanent, exhausted, blocked, malformed, unroutable, too_large or expired; may be repeated")
	flags.StringArrayVar(&f.errorTypes, "error-type", nil, "`type` of the error, may be repeated")
	flags.StringVar(&f.errorText, "error-text", "", "`part` of the error's text, in any case; slow where it stands alone")
	flags.StringArrayVar(&f.fingerprints, "fingerprint", nil, "`fingerprint` of the error, as dlt-replayer groups shows it; may be repeated")
	flags.StringArrayVar(&f.labels, "label", nil, "`value` of the header that replayer.labelHeader names, may be repeated")
	flags.StringSliceVar(&f.states, "state", nil, "`state`: dead, claimed, replayed, succeeded, returned, discarded or expired; may be repeated")
	flags.StringVar(&f.job, "job", "", "`job` that replayed or claimed it last")
	flags.Int32Var(&f.partition, "partition", 0, "partition `number` in the topic of dead letters")
	flags.Int64Var(&f.offset, "offset", 0, "`offset` in its partition")
	flags.StringVar(&f.from, "from", "", "dead at this `time` or later: 2026-01-31T10:00:00Z, or how long ago, such as 2h")
	flags.StringVar(&f.to, "to", "", "dead before this `time`")
	flags.Int32Var(&f.minAttempt, "min-attempt", 0, "failed deliveries at least, a `number`")
	flags.Int32Var(&f.maxAttempt, "max-attempt", 0, "failed deliveries at most, a `number`")
	flags.Int32Var(&f.minDeliveries, "min-deliveries", 0, "failed deliveries over all replays at least, a `number`")
	flags.Int64Var(&f.upTo, "up-to", 0, "highest `number` of a letter")
}

// filterFlags are the flags that select.
func filterFlags() []string {
	return []string{
		"id", "message-id", "key", "no-key", "topic", "origin", "group", "dead-reason", "error-type", "error-text", "fingerprint", "label", "state", "job",
		"partition", "offset", "from", "to", "min-attempt", "max-attempt", "min-deliveries", "up-to",
	}
}

// given tells whether any flag that selects is there.
func given(cmd *cobra.Command) bool {
	for _, name := range filterFlags() {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// filter is what the flags, and the numbers of letters among the arguments, select.
func (f *filter) filter(cmd *cobra.Command, args []string, now time.Time) (client.Filter, error) {
	usage := func(err error) (client.Filter, error) { return client.Filter{}, command.Usage(cmd, err) }
	changed := cmd.Flags().Changed
	var out client.Filter
	out.ID = append(out.ID, f.ids...)
	for _, arg := range args {
		id, err := letterNumber(arg)
		if err != nil {
			return usage(err)
		}
		out.ID = append(out.ID, id)
	}
	if changed("key") {
		key, err := command.DecodeKey(f.key, f.encoding)
		switch {
		case err != nil:
			return usage(err)
		case utf8.Valid(key):
			out.Key = new(string(key))
		default:
			out.KeyBase64 = new(base64.StdEncoding.EncodeToString(key))
		}
	} else if changed("key-encoding") {
		return usage(errors.New("--key-encoding is of --key only"))
	}
	if f.noKey {
		out.NoKey = new(true)
	}
	out.MessageID, out.Topic, out.Origin, out.Group = f.messageIDs, f.topics, f.origins, f.groups
	out.ErrorType, out.Fingerprint, out.Label = f.errorTypes, f.fingerprints, f.labels
	for _, r := range f.reasons {
		out.Reason = append(out.Reason, client.Reason(r))
	}
	for _, s := range f.states {
		out.State = append(out.State, client.State(s))
	}
	out.ErrorText, out.Job = text(f.errorText), text(f.job)
	out.Partition, out.Offset = of(changed("partition"), f.partition), of(changed("offset"), f.offset)
	out.MinAttempt, out.MaxAttempt = of(changed("min-attempt"), f.minAttempt), of(changed("max-attempt"), f.maxAttempt)
	out.MinDeliveries, out.UpTo = of(changed("min-deliveries"), f.minDeliveries), of(changed("up-to"), f.upTo)
	var err error
	if out.From, err = instant("--from", f.from, now); err != nil {
		return usage(err)
	}
	if out.To, err = instant("--to", f.to, now); err != nil {
		return usage(err)
	}
	return out, nil
}

// named tells whether a filter names letters or messages one by one.
func named(f client.Filter) bool { return len(f.ID) > 0 || len(f.MessageID) > 0 }

func letterNumber(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("%q is not the number of a letter; for the id of a message there is --message-id", arg)
	}
	return id, nil
}

// instant reads a time, or how long ago it was.
func instant(flag, text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // None was given.
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &at, nil
	}
	ago, err := model.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("%s %q: want a time such as 2026-01-31T10:00:00Z, or how long ago, such as 2h or 7d", flag, text)
	}
	at := now.Add(-time.Duration(ago)).UTC()
	return &at, nil
}

func text(s string) *string { return of(s != "", s) }

func of[T any](there bool, value T) *T {
	if !there {
		return nil
	}
	return &value
}
