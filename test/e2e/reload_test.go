package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// configMap is topics.yaml as Kubernetes mounts it: a link to a link, which is exchanged as a whole.
type configMap struct {
	s       *story
	dir     string
	version int
}

// mount moves the file of the story to where a ConfigMap would be.
func (s *story) mount() *configMap {
	s.t.Helper()
	m := &configMap{s: s, dir: s.t.TempDir()}
	s.config = filepath.Join(m.dir, "topics.yaml")
	m.swap(s.text)
	if err := os.Symlink("..data/topics.yaml", s.config); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// swap exchanges the file.
func (m *configMap) swap(text string) {
	m.s.t.Helper()
	m.version++
	version := fmt.Sprint("..version", m.version)
	fresh := filepath.Join(m.dir, "..data_tmp")
	for _, step := range []func() error{
		func() error { return os.Mkdir(filepath.Join(m.dir, version), 0o700) },
		func() error { return os.WriteFile(filepath.Join(m.dir, version, "topics.yaml"), []byte(text), 0o600) },
		func() error { return os.Symlink(version, fresh) },
		func() error { return os.Rename(fresh, filepath.Join(m.dir, "..data")) },
		func() error { return os.RemoveAll(filepath.Join(m.dir, fmt.Sprint("..version", m.version-1))) },
	} {
		if err := step(); err != nil {
			m.s.t.Fatal(err)
		}
	}
}

// with is the file of the story with other text in one place.
func (s *story) with(old, fresh string) string {
	s.t.Helper()
	if !strings.Contains(s.text, old) {
		s.t.Fatalf("topics.yaml has no %q", old)
	}
	return strings.Replace(s.text, old, fresh, 1)
}

// save writes the file of the story as an editor does.
func (s *story) save(text string) {
	s.t.Helper()
	if err := os.Rename(s.configFile("topics.yaml.new", text), s.config); err != nil {
		s.t.Fatal(err)
	}
}

// awaitCode waits until the process shows an issue, or shows it no more.
func (c *child) awaitCode(code string, present bool) {
	c.t.Helper()
	testkit.WaitFor(c.t, patience, fmt.Sprintf("issue %s: %v", code, present), func(ctx context.Context) error {
		r, err := c.ready(ctx)
		if err != nil {
			return err
		}
		has := false
		for _, i := range r.Issues {
			has = has || i.Issue == code
		}
		if has != present {
			return fmt.Errorf("readyz: %+v", r)
		}
		return nil
	})
}

// failures are so many records for the inbox, numbered from a word.
func (s *story) failures(word string, n int, headers ...kgo.RecordHeader) (records []*kgo.Record, values []string) {
	for i := range n {
		value := word + strconv.Itoa(i)
		values = append(values, value)
		records = append(records, &kgo.Record{Topic: s.inbox(), Key: []byte(value), Value: []byte(value), Headers: headers})
	}
	return records, values
}

// arrived is the number of records on a topic.
func (s *story) arrived(topic string) int {
	s.t.Helper()
	n := 0
	for _, end := range s.client.EndOffsets(topic) {
		n += int(end)
	}
	return n
}

func TestAPausedTopicHoldsItsReturnsUntilTheFileSaysOtherwise(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms"}, forwarder: "reloadInterval: 200ms", topic: "paused: false"})
	m := s.mount()
	c := s.start()
	m.swap(s.with("paused: false", "paused: true"))
	c.awaitCode("paused", true)

	records, values := s.failures("held", 40)
	dead, deadValues := s.failures("dead", 5, kgo.RecordHeader{Key: "redrive-reason", Value: []byte("poison")})
	s.client.Produce(append(records, dead...)...)
	s.client.WaitForRecords(patience, s.deadLetters(), len(dead)) // Those are no returns.
	c.awaitMetric("redrive_overdue_records", s.tiers[0], float64(len(records)))
	if n := s.arrived(s.origin); n > 0 {
		t.Errorf("%d records came back to a paused origin", n)
	}
	if got, err := c.metric(t.Context(), "redrive_issue", ""); err != nil || got < 1 {
		t.Errorf("redrive_issue is %v, %v", got, err)
	}

	m.swap(s.with("paused: false", "paused: false, partitioner: murmur2")) // Other bytes, the same meaning.
	s.awaitDrained(len(records) + len(dead))
	c.awaitCode("paused", false)
	if strings.Contains(c.tail(), "drains") {
		t.Error("the forwarder was replaced for a pause")
	}
	c.term()
	h := s.read()
	s.checkNoneLost(h, append(values, deadValues...))
	s.checkNoneTwice(h, append(values, deadValues...))
}

func TestARateLimitHoldsTheRateUntilTheFileSaysOtherwise(t *testing.T) {
	t.Parallel()
	const rate, limited = 20, 60
	s := tell(t, stage{tiers: []string{"500ms"}, forwarder: "reloadInterval: 200ms", topic: fmt.Sprintf("rateLimit: %d", rate)})
	c := s.start()
	records, values := s.failures("slow", 1000)
	s.client.Produce(records...)
	c.awaitCode("rate-limited", true)
	testkit.WaitFor(t, patience, "some records on the origin", func(context.Context) error {
		if n := s.arrived(s.origin); n < limited {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	lifted := time.Now()
	s.save(s.with(fmt.Sprintf("rateLimit: %d", rate), "rateLimit: 0"))
	s.awaitDrained(len(records))
	if took := time.Since(lifted); took > 30*time.Second {
		t.Errorf("without the limit it took %v", took)
	}
	c.term()

	h := s.read()
	s.checkNoneLost(h, values)
	s.checkNoneTwice(h, values)
	var stamps []time.Time
	for _, value := range values {
		for _, r := range h[s.origin][value] {
			stamps = append(stamps, r.Timestamp)
		}
	}
	slices.SortFunc(stamps, time.Time.Compare)
	took := stamps[limited-1].Sub(stamps[0])
	got := float64(limited-1) / took.Seconds()
	t.Logf("%d records in %v: %.1f/s", limited, took, got)
	if got > rate*1.25 || got < rate*0.5 {
		t.Errorf("%.1f records/s with a limit of %d", got, rate)
	}
}

func TestAFileThatIsWrongLeavesTheLastGoodOneInForce(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms"}, forwarder: "reloadInterval: 200ms"})
	c := s.start()
	c.awaitMetric("redrive_config_reload_successful", "", 1)
	for i, wrong := range []string{
		s.with("tiers:", "teirs:"),
		s.with("tiers: [500ms]", "tiers: [500ms, 7s]"), // Its topic is not there.
		"",
	} {
		s.save(wrong)
		c.awaitMetric("redrive_config_reload_successful", "", 0)
		c.awaitCode("reload-failed", true)
		s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("moves" + strconv.Itoa(i))})
		s.awaitDrained(i + 1)
		s.save(s.text)
		c.awaitMetric("redrive_config_reload_successful", "", 1)
		c.awaitCode("reload-failed", false)
	}
	s.save(s.with("reloadInterval: 200ms", "reloadInterval: 300ms"))
	c.awaitCode("restart-required", true)
	c.term()
	if log := c.tail(); !strings.Contains(log, "forwarder.reloadInterval") || strings.Contains(log, "drains") {
		t.Errorf("the log names not the key that needs a restart, or a replaced forwarder:\n%s", log)
	}
}

func TestAHangupReloadsInTheSameProcess(t *testing.T) {
	t.Parallel()
	s := tell(t, stage{tiers: []string{"500ms", "1s"}, forwarder: "reloadInterval: 0s"})
	c := s.start()
	s.save(s.with("tiers: [500ms, 1s]", "tiers: [500ms]"))
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, patience, "the reload in the log", func(context.Context) error {
		if log := c.tail(); !strings.Contains(log, "configuration reloaded") {
			return fmt.Errorf("%s", log)
		}
		return nil
	})
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("moves")})
	s.awaitDrained(1)
	c.term()
}

func TestATierThatIsRemovedOrRenamedDrains(t *testing.T) {
	t.Parallel()
	for name, tiers := range map[string]string{"removed": "[500ms]", "renamed": "[500ms, {name: five, delay: 5s}]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t, stage{
				settings:  map[string]string{"message.timestamp.type": "LogAppendTime"},
				tiers:     []string{"500ms", "5s"},
				forwarder: "reloadInterval: 200ms",
			})
			text := s.with("[500ms, 5s]", tiers)
			s.expect(0, "topics", "apply", "-c", s.configFile("next.yaml", text))
			c := s.start()
			old := s.tiers[1]
			second := kgo.RecordHeader{Key: "redrive-attempt", Value: []byte("1")}
			before, values := s.failures("before", 100, second)
			s.client.Produce(before...)
			c.awaitMetric("redrive_held_records", old, float64(len(before)))

			s.save(text)
			testkit.WaitFor(t, patience, "the reload in the log", func(context.Context) error {
				if !strings.Contains(c.tail(), "configuration reloaded") {
					return fmt.Errorf("%s", c.tail())
				}
				return nil
			})
			if name == "renamed" {
				s.tiers = append(s.tiers, s.origin+".retry.five")
				after, more := s.failures("after", 100, second)
				s.client.Produce(after...)
				values = append(values, more...)
			}
			s.awaitDrained(len(values))
			c.term()

			h := s.read()
			s.checkNoneLost(h, values)
			s.checkNoneTwice(h, values)
			s.checkNoneEarly(h, values)
		})
	}
}
