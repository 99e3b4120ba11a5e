package sqlquery

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// maxListed is how many values of a list stand in the text of a filter.
const maxListed = 20

// Text is a filter as it stands in the audit trail: each field that selects, by the name the API gives it. A key is base64.
// Long lists are cut and counted.
func Text(f deadletter.Filter) string {
	var parts []string
	add := func(name, value string) { parts = append(parts, name+"="+value) }
	list := func(name string, values []string) {
		if len(values) == 0 {
			return
		}
		shown := make([]string, 0, min(len(values), maxListed))
		for _, value := range values[:min(len(values), maxListed)] {
			shown = append(shown, quote(value))
		}
		text := strings.Join(shown, ",")
		if more := len(values) - maxListed; more > 0 {
			text += fmt.Sprintf(",... (%d in all)", len(values))
		}
		add(name, text)
	}
	number := func(name string, value int) {
		if value > 0 {
			add(name, strconv.Itoa(value))
		}
	}
	instant := func(name string, at time.Time) {
		if !at.IsZero() {
			add(name, at.UTC().Format(time.RFC3339Nano))
		}
	}

	ids := make([]string, len(f.IDs))
	for i, id := range f.IDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	list("ids", ids)
	list("messageIds", f.MessageIDs)
	switch {
	case f.HasKey && f.Key == nil:
		add("key", "null")
	case f.HasKey:
		add("key", base64.StdEncoding.EncodeToString(f.Key))
	}
	list("topics", f.Topics)
	list("origins", f.Origins)
	list("groups", f.Groups)
	list("reasons", plain(f.Reasons))
	list("errorTypes", f.ErrorTypes)
	if f.ErrorText != "" {
		add("errorText", quote(f.ErrorText))
	}
	list("fingerprints", f.Fingerprints)
	list("labels", f.Labels)
	list("states", plain(f.States))
	if f.Job != "" {
		add("job", quote(f.Job))
	}
	if f.Partition != nil {
		add("partition", strconv.Itoa(int(*f.Partition)))
	}
	if f.Offset != nil {
		add("offset", strconv.FormatInt(*f.Offset, 10))
	}
	instant("from", f.DeadFrom)
	instant("to", f.DeadTo)
	number("minAttempt", f.MinAttempt)
	number("maxAttempt", f.MaxAttempt)
	number("minDeliveries", f.MinDeliveries)
	if f.UpTo > 0 {
		add("upTo", strconv.FormatInt(f.UpTo, 10))
	}
	if f.Unkept {
		add("kept", "false")
	}
	expiring := make([]string, len(f.Expiring))
	for i, cut := range f.Expiring {
		expiring[i] = cut.Topic + "<" + cut.Before.UTC().Format(time.RFC3339Nano)
	}
	list("expiring", expiring)
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

// quote keeps a value apart from what stands around it.
func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " ,=\"\\") || strconv.Quote(s) != `"`+s+`"` {
		return strconv.Quote(s)
	}
	return s
}
