package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/envelope"
)

const (
	// maxValues is how many values one list of a filter can have: a file of message ids, rather than a table.
	maxValues = 100_000
	// maxText bounds each text of a filter; a key or message id may be as long as Kafka takes it in practice.
	maxText = 16 << 10
)

// filterOf reads the filter out of the parameters of any operation. Generated, each operation has a type of its own for
// them; what they share are the names, which are those of Filter.
func filterOf(params any) (deadletter.Filter, error) {
	text, err := json.Marshal(params)
	if err != nil {
		return deadletter.Filter{}, newProblem(codeBadRequest, "a time is out of range")
	}
	var filter Filter
	if err := json.Unmarshal(text, &filter); err != nil {
		return deadletter.Filter{}, fmt.Errorf("read the filter: %w", err)
	}
	return filter.selection()
}

// selection is the filter as the ledger knows it.
func (f *Filter) selection() (deadletter.Filter, error) {
	out := deadletter.Filter{
		IDs: f.ID, MessageIDs: f.MessageID, Topics: f.Topic, Origins: f.Origin, Groups: f.Group,
		ErrorTypes: f.ErrorType, Fingerprints: f.Fingerprint, Labels: f.Label,
		ErrorText: value(f.ErrorText), Job: value(f.Job), Partition: f.Partition, Offset: f.Offset,
		MinAttempt: int(value(f.MinAttempt)), MaxAttempt: int(value(f.MaxAttempt)), MinDeliveries: int(value(f.MinDeliveries)),
		DeadFrom: value(f.From), DeadTo: value(f.To), UpTo: value(f.UpTo),
	}
	if err := f.checkTexts(); err != nil {
		return out, err
	}
	if err := f.checkNumbers(); err != nil {
		return out, err
	}
	if f.Job != nil {
		if _, err := jobID(*f.Job); err != nil {
			return out, badParameter("job", "job must be the id of a job, a UUID")
		}
	}
	for _, reason := range f.Reason {
		if !reason.Valid() {
			return out, notOneOf("reason", string(reason), reasons())
		}
		out.Reasons = append(out.Reasons, envelope.Reason(reason))
	}
	for _, state := range f.State {
		if !state.Valid() {
			return out, notOneOf("state", string(state), states())
		}
		out.States = append(out.States, deadletter.State(state))
	}
	var err error
	out.Key, out.HasKey, err = f.key()
	return out, err
}

// value is what an optional field has, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func reasons() []string {
	all := []Reason{ReasonPoison, ReasonPermanent, ReasonExhausted, ReasonBlocked, ReasonMalformed, ReasonUnroutable, ReasonTooLarge, ReasonExpired}
	out := make([]string, 0, len(all))
	for _, r := range all {
		out = append(out, string(r))
	}
	return out
}

func states() []string {
	var out []string
	for _, s := range deadletter.States() {
		out = append(out, string(s))
	}
	return out
}

// checkTexts refuses what no letter has and a database may not take, and lists that select nothing: one that is empty
// would be the same as none, which selects everything.
func (f *Filter) checkTexts() error {
	lists := []struct {
		name   string
		values []string
	}{
		{"messageId", f.MessageID},
		{"topic", f.Topic},
		{"origin", f.Origin},
		{"group", f.Group},
		{"errorType", f.ErrorType},
		{"fingerprint", f.Fingerprint},
		{"label", f.Label},
	}
	for _, l := range lists {
		if err := checkCount(l.name, len(l.values), l.values != nil); err != nil {
			return err
		}
		for _, v := range l.values {
			if err := checkText(l.name, v, maxText); err != nil {
				return err
			}
		}
	}
	for name, length := range map[string]int{"id": len(f.ID), "reason": len(f.Reason), "state": len(f.State)} {
		given := name == "id" && f.ID != nil || name == "reason" && f.Reason != nil || name == "state" && f.State != nil
		if err := checkCount(name, length, given); err != nil {
			return err
		}
	}
	if f.ErrorText != nil {
		return checkText("errorText", *f.ErrorText, maxText)
	}
	return nil
}

func checkCount(name string, length int, given bool) error {
	switch {
	case given && length == 0:
		return badParameter(name, "%s is an empty list, which selects nothing; leave it out to select by other fields", name)
	case length > maxValues:
		return badParameter(name, "%s has %d values, which are more than %d", name, length, maxValues)
	}
	return nil
}

// checkText refuses text that is too long, not UTF-8, or has a zero byte.
func checkText(name, text string, limit int) error {
	switch {
	case len(text) > limit:
		return badParameter(name, "%s is longer than %d bytes", name, limit)
	case !utf8.ValidString(text):
		return badParameter(name, "%s is not valid UTF-8", name)
	case strings.ContainsRune(text, 0):
		return badParameter(name, "%s has a zero byte", name)
	}
	return nil
}

// checkNumbers refuses what the ledger would take for "not given", or what nothing can be.
func (f *Filter) checkNumbers() error {
	for _, id := range f.ID {
		if id < 1 {
			return badParameter("id", "id must be at least 1")
		}
	}
	atLeast := func(name string, given bool, got, least int64) error {
		if given && got < least {
			return badParameter(name, "%s must be at least %d", name, least)
		}
		return nil
	}
	for _, err := range []error{
		atLeast("partition", f.Partition != nil, int64(value(f.Partition)), 0),
		atLeast("offset", f.Offset != nil, value(f.Offset), 0),
		atLeast("minAttempt", f.MinAttempt != nil, int64(value(f.MinAttempt)), 0),
		atLeast("maxAttempt", f.MaxAttempt != nil, int64(value(f.MaxAttempt)), 1),
		atLeast("minDeliveries", f.MinDeliveries != nil, int64(value(f.MinDeliveries)), 0),
		atLeast("upTo", f.UpTo != nil, value(f.UpTo), 1),
		checkTime("from", f.From), checkTime("to", f.To),
	} {
		if err != nil {
			return err
		}
	}
	if f.From != nil && f.To != nil && !f.From.Before(*f.To) {
		return badParameter("to", "to must be later than from")
	}
	return nil
}

// checkTime refuses times that no record has, and that databases count differently.
func checkTime(name string, t *time.Time) error {
	if t != nil && (t.UTC().Year() < 1970 || t.UTC().Year() > 2200) {
		return badParameter(name, "%s must be a time between 1970 and 2200", name)
	}
	return nil
}

// key is the one key that is asked for, if one is.
func (f *Filter) key() (key []byte, given bool, err error) {
	count := 0
	if f.Key != nil {
		count++
		if len(*f.Key) > maxText || !utf8.ValidString(*f.Key) {
			return nil, false, badParameter("key", "key must be valid UTF-8 of at most %d bytes; keyBase64 takes any bytes", maxText)
		}
		key = []byte(*f.Key)
	}
	if f.KeyBase64 != nil {
		count++
		if key, err = decodeBase64("keyBase64", *f.KeyBase64); err != nil {
			return nil, false, err
		}
	}
	if value(f.NoKey) {
		count++
		key = nil
	}
	if count > 1 {
		return nil, false, badParameter("key", "only one of key, keyBase64 and noKey can be given")
	}
	return key, count == 1, nil
}

// decodeBase64 takes both alphabets, with and without padding, since one of them is a nuisance in a URL.
func decodeBase64(name, text string) ([]byte, error) {
	plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	out, err := base64.RawStdEncoding.Strict().DecodeString(plain)
	if err != nil {
		return nil, badParameter(name, "%s is not base64", name)
	}
	return out, nil
}

// selectsAll tells whether a filter leaves nothing out but by state, or by when the letter was indexed.
func selectsAll(f *deadletter.Filter) bool {
	return len(f.IDs) == 0 && len(f.MessageIDs) == 0 && !f.HasKey && len(f.Topics) == 0 && len(f.Origins) == 0 && len(f.Groups) == 0 &&
		len(f.Reasons) == 0 && len(f.ErrorTypes) == 0 && f.ErrorText == "" && len(f.Fingerprints) == 0 && len(f.Labels) == 0 &&
		f.Job == "" && f.Partition == nil && f.Offset == nil && f.DeadFrom.IsZero() && f.DeadTo.IsZero() &&
		f.MinAttempt == 0 && f.MaxAttempt == 0 && f.MinDeliveries == 0
}

// jobID is the canonical form of the id of a job. What is no UUID is no job.
func jobID(text string) (string, error) {
	const length = 36 // uuid.Parse takes other forms as well, which are no ids of ours.
	id, err := uuid.Parse(text)
	if err != nil || len(text) != length {
		return "", newProblem(codeUnknown, "there is no such job")
	}
	return id.String(), nil
}

// topicName is what Kafka takes as the name of a topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
