package fault

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// patience is how long a state may take to come about that takes seconds on a machine that is not busy.
const patience = 90 * time.Second

// stage is what a scene begins with.
type stage struct {
	partitions int32             // of all topics; 0 means 4
	delay      string            // of the one tier; "" means 2s
	settings   map[string]string // of the origins
	forwarder  string            // more keys of that section of topics.yaml, as "a: b, c: d"
	topic      string            // more keys of the first entry, likewise
	neighbour  bool              // a second origin, to which nothing happens
}

// ladder is one origin with its topics.
type ladder struct{ origin, delay string }

func (l *ladder) inbox() string       { return l.origin + ".retry" }
func (l *ladder) tier() string        { return l.origin + ".retry." + l.delay }
func (l *ladder) deadLetters() string { return l.origin + ".dlt" }

// wait is the delay of the tier.
func (l *ladder) wait() time.Duration {
	d, _ := time.ParseDuration(l.delay) // The forwarder has read it already.
	return d
}

// ranks are the topics of the ladder with what a record in them has come to.
func (l *ladder) ranks() map[string]rank {
	return map[string]rank{l.inbox(): handedOver, l.tier(): waiting, l.origin: settled, l.deadLetters(): buried}
}

// scene is one play of a fault. Its methods are for the goroutine of the play, unless they say otherwise.
type scene struct {
	*ladder   // the first one, to which things happen
	neighbour *ladder

	site  *Site
	stage stage
	quick bool

	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup
	err        error // why the play ended before its end
	result     Result

	kafka      *testkit.Kafka
	client     *testkit.Client
	dir        string
	config     string // topics.yaml of the forwarders
	operator   string // the same for an operator, who may do everything
	group      string
	partitions int32
	processes  []*process
	watch      *watch
	kept       history // what stood in topics before they were deleted or truncated

	mu      sync.Mutex // guards the following
	records int        // made so far
	acked   []string   // values
}

// failf ends the play. The format may hold one %w.
func (s *scene) failf(format string, args ...any) {
	s.err = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// check ends the play if there is an error.
func (s *scene) check(err error) {
	if err != nil {
		s.failf("%w", err)
	}
}

// wrongf notes something that must not be, and goes on.
func (s *scene) wrongf(format string, args ...any) {
	s.result.Wrong = append(s.result.Wrong, fmt.Sprintf(format, args...))
}

// seen notes something that showed the fault.
func (s *scene) seen(text string) {
	s.say("seen: %s", text)
	if !slices.Contains(s.result.Seen, text) {
		s.result.Seen = append(s.result.Seen, text)
	}
}

func (s *scene) say(format string, args ...any) {
	s.site.Say("%s: %s", s.result.Fault.Name, fmt.Sprintf(format, args...))
}

// short writes names of topics without what only makes them unique.
func (s *scene) short(text string) string {
	text = strings.ReplaceAll(text, s.origin, "orders")
	if s.neighbour != nil {
		text = strings.ReplaceAll(text, s.neighbour.origin, "neighbour")
	}
	return text
}

// await calls cond until it returns nil.
func await(ctx context.Context, cond func(context.Context) error) error {
	return testkit.Await(ctx, cond)
}

// await waits for a state and ends the play if it does not come.
func (s *scene) await(what string, cond func(context.Context) error) {
	s.awaitWithin(patience, what, cond)
}

func (s *scene) awaitWithin(limit time.Duration, what string, cond func(context.Context) error) {
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	if err := await(ctx, cond); err != nil {
		s.failf("waited %v for %s: %w", limit, what, err)
	}
}

// pause lets time go by: that of the fault, which nothing else measures.
func (s *scene) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		s.check(context.Cause(s.ctx))
	}
}

// several is a number of records or rounds: few of them if the site asks for that.
func (s *scene) several(many, few int) int {
	if s.quick {
		return few
	}
	return many
}

// enter makes the topics of the scene and begins to watch the commits.
func (s *scene) enter(kind Cluster) {
	var err error
	s.client, err = testkit.NewClient(s.kafka.Brokers())
	s.check(err)

	name := s.result.Fault.Name
	s.dir, err = os.MkdirTemp(s.site.Dir, name+"-")
	s.check(err)
	s.group = testkit.UniqueName(name)
	s.partitions = max(s.stage.partitions, 1)
	if s.stage.partitions == 0 {
		s.partitions = 4
	}
	delay := s.stage.delay
	if delay == "" {
		delay = "2s"
	}
	s.ladder = &ladder{testkit.UniqueName("orders"), delay}
	if s.stage.neighbour {
		s.neighbour = &ladder{testkit.UniqueName("neighbour"), delay}
	}
	for _, l := range s.ladders() {
		s.check(s.client.CreateTopic(s.ctx, l.origin, s.partitions, s.originSettings()))
	}
	s.kept = history{}
	s.operator = s.write("operator.yaml", s.topicsYAML(s.kafka.Brokers(), ""))
	s.config = s.operator
	if kind == Guarded {
		login := fmt.Sprintf(", sasl: {enabled: true, mechanism: PLAIN, username: %s, password: %s}", forwarderUser, forwarderPassword)
		s.config = s.write("topics.yaml", s.topicsYAML(s.kafka.SecureBrokers(), login))
	}
	s.must("topics", "apply", "-c", s.operator)

	s.watch = newWatch(s.client, s.group)
	s.background.Go(func() { s.watch.run(s.ctx) })
}

// originSettings are those of an origin: its stamps tell when a copy was written.
func (s *scene) originSettings() map[string]string {
	settings := map[string]string{"message.timestamp.type": "LogAppendTime"}
	maps.Copy(settings, s.stage.settings)
	return settings
}

func (s *scene) ladders() []*ladder {
	if s.neighbour == nil {
		return []*ladder{s.ladder}
	}
	return []*ladder{s.ladder, s.neighbour}
}

// sources are the topics that the forwarder reads.
func (s *scene) sources() []string {
	var all []string
	for _, l := range s.ladders() {
		all = append(all, l.inbox(), l.tier())
	}
	return all
}

// owned is the number of partitions of all sources.
func (s *scene) owned() int { return int(s.partitions) * len(s.sources()) }

func (s *scene) topicsYAML(brokers []string, login string) string {
	more := func(keys string) string {
		if keys == "" {
			return ""
		}
		return ", " + keys
	}
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("kafka: {brokers: [%s], clientId: %s%s}", strings.Join(brokers, ", "), s.group, login)
	line("forwarder: {group: %s, admin: {address: \"127.0.0.1:0\"}%s}", s.group, more(s.stage.forwarder))
	line("logging: {format: text}")
	line("topics:")
	for _, l := range s.ladders() {
		keys := ""
		if l == s.ladder {
			keys = s.stage.topic
		}
		line("  - {origin: %s, tiers: [%s]%s}", l.origin, l.delay, more(keys))
	}
	return text.String()
}

func (s *scene) write(name, text string) string {
	path := filepath.Join(s.dir, name)
	s.check(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// leave ends all that the scene has started. The folder with the logs stays.
func (s *scene) leave() {
	s.cancel()
	for _, p := range s.processes {
		p.kill()
	}
	s.background.Wait()
	if s.client != nil {
		s.client.Close()
	}
}

// record makes a record for the inbox, with a value of so many bytes that no other has and that does not compress. It is
// safe for concurrent use.
func (s *scene) record(size int) *kgo.Record {
	s.mu.Lock()
	n := s.records
	s.records++
	s.mu.Unlock()
	value := fmt.Appendf(nil, "%s %06d ", s.result.Fault.Name, n)
	if missing := size - len(value); missing > 0 {
		value = append(value, make([]byte, missing)...)
		_, _ = rand.Read(value[len(value)-missing:]) // never fails
	}
	return &kgo.Record{Topic: s.inbox(), Key: strconv.AppendInt(nil, int64(n%97), 10), Value: value}
}

// some makes so many small records for the inbox of a ladder.
func (s *scene) some(l *ladder, n int) []*kgo.Record {
	all := make([]*kgo.Record, n)
	for i := range all {
		all[i] = s.record(100)
		all[i].Topic = l.inbox()
	}
	return all
}

// later makes so many small records for the tier, due one after the other from so long from now on.
func (s *scene) later(n int, from, apart time.Duration) []*kgo.Record {
	all := s.some(s.ladder, n)
	for i, r := range all {
		due := time.Now().Add(from + time.Duration(i)*apart)
		r.Topic = s.tier()
		with(r, "redrive-available-at", due.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	return all
}

// with adds a header.
func with(r *kgo.Record, name, value string) {
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
}

// hand hands records over: they are acknowledged when it returns.
func (s *scene) hand(records ...*kgo.Record) { s.handBy(s.client, records...) }

// handInBatches is hand with so many records at most in a batch.
func (s *scene) handInBatches(size int, records ...*kgo.Record) {
	for batch := range slices.Chunk(records, size) {
		s.hand(batch...)
	}
}

func (s *scene) handBy(client *testkit.Client, records ...*kgo.Record) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	s.check(client.Produce(ctx, records...))
	s.note(records...)
}

// note remembers what was acknowledged. It is safe for concurrent use.
func (s *scene) note(records ...*kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		s.acked = append(s.acked, string(r.Value))
	}
}

// load hands over so many records a second until what it returns is called.
func (s *scene) load(perSecond int) (stop func()) {
	client, err := testkit.NewClient(s.kafka.Brokers())
	s.check(err)
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	s.background.Go(func() {
		defer close(done)
		defer client.Close()
		pace := time.NewTicker(time.Second / time.Duration(perSecond))
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				// What is on its way must still arrive, unless the scene is over.
				_ = client.Kafka().Flush(s.ctx)
				return
			case <-pace.C:
			}
			client.Kafka().Produce(context.WithoutCancel(ctx), s.record(100), func(r *kgo.Record, err error) {
				if err == nil {
					s.note(r)
				}
			})
		}
	})
	return func() {
		cancel()
		select {
		case <-done:
		case <-s.ctx.Done():
			s.check(context.Cause(s.ctx))
		}
	}
}

// ends are the ends of a topic.
func (s *scene) ends(topic string) map[int32]int64 {
	var ends map[int32]int64
	s.await("the ends of "+topic, func(ctx context.Context) (err error) {
		ends, err = s.client.EndOffsets(ctx, topic)
		return err
	})
	return ends
}

// count is how many records a topic has taken.
func (s *scene) count(topic string) int64 {
	n := int64(0)
	for _, end := range s.ends(topic) {
		n += end
	}
	return n
}

// commits are those of the group.
func (s *scene) commits() kadm.Offsets {
	var commits kadm.Offsets
	s.await("the commits", func(ctx context.Context) (err error) {
		commits, err = s.client.CommittedOffsets(ctx, s.group)
		return err
	})
	return commits
}

// committed is the sum of the commits on a topic.
func (s *scene) committed(topic string) int64 {
	sum := int64(0)
	for _, o := range s.commits()[topic] {
		sum += o.At
	}
	return sum
}

// drained returns nil when no process holds a record and the commits stand at the end of every source.
func (s *scene) drained(ctx context.Context) error {
	running := 0
	for _, p := range s.processes {
		if p.running() {
			running++
			held, err := p.metric(ctx, "redrive_held_records")
			if err == nil && held > 0 {
				err = fmt.Errorf("%v records are held", held)
			}
			if err != nil {
				return err
			}
		} else if !p.mayEnd {
			p.mustRun()
		}
	}
	if running == 0 {
		return errors.New("no forwarder runs")
	}
	commits, err := s.client.CommittedOffsets(ctx, s.group)
	if err != nil {
		return err
	}
	for _, topic := range s.sources() {
		ends, err := s.client.EndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for _, partition := range slices.Sorted(maps.Keys(ends)) {
			if commit, _ := commits.Lookup(topic, partition); commit.At != ends[partition] {
				return fmt.Errorf("%s/%d ends at %d, the commit stands at %d", s.short(topic), partition, ends[partition], commit.At)
			}
		}
	}
	return nil
}

func (s *scene) awaitDrained() { s.await("all commits to stand at the end", s.drained) }

// recovers waits until all that is left has come to its end after the fault is over.
func (s *scene) recovers() {
	began := time.Now()
	s.await("the forwarder to recover", s.drained)
	s.result.Recovered = max(s.result.Recovered, time.Since(began))
}

// keep reads what stands in a topic, because that will be gone.
func (s *scene) keep(topic string) {
	for _, l := range s.ladders() {
		if rank, ok := l.ranks()[topic]; ok {
			s.read(topic, rank)
		}
	}
}

func (s *scene) read(topic string, rank rank) {
	var records []*kgo.Record
	s.await("a look at "+topic, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, patience/3)
		defer cancel()
		records, err = s.client.ReadAll(ctx, topic, kgo.ReadUncommitted())
		return err
	})
	s.kept.add(incarnation(topic, s.watch.made[topic]), rank, records)
}

// trim removes what stands below the offsets, as retention does.
func (s *scene) trim(topic string, below map[int32]int64) {
	s.keep(topic)
	s.check(s.client.DeleteRecords(s.ctx, topic, below))
}

// deleteTopic deletes a topic, and with it the commits there.
func (s *scene) deleteTopic(topic string) {
	// Nobody looks at the commits between the two topics of that name.
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.keep(topic)
	if _, err := s.client.Admin().DeleteTopic(s.ctx, topic); err != nil {
		s.failf("delete %s: %w", topic, err)
	}
	s.await(topic+" to be gone", func(ctx context.Context) error {
		details, err := s.client.Admin().ListTopics(ctx, topic)
		if err == nil && details.Has(topic) && !errors.Is(details[topic].Err, kerr.UnknownTopicOrPartition) {
			err = errors.New("it is still there")
		}
		if err != nil {
			return err
		}
		commits, err := s.client.CommittedOffsets(ctx, s.group)
		if err == nil && len(commits[topic]) > 0 {
			err = errors.New("its commits are still there")
		}
		return err
	})
	s.watch.made[topic]++
}

// createOrigin makes the origin of the first ladder again.
func (s *scene) createOrigin() {
	s.check(s.client.CreateTopic(s.ctx, s.origin, s.partitions, s.originSettings()))
}

// set changes a setting of topics, and returns when the brokers go by it.
func (s *scene) set(name, value string, topics ...string) {
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
	responses, err := s.client.Admin().AlterTopicConfigs(s.ctx, change, topics...)
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		s.failf("set %s of %v: %w", name, topics, err)
	}
	s.await(name, func(ctx context.Context) error {
		configs, err := s.client.Admin().DescribeTopicConfigs(ctx, topics...)
		if err != nil {
			return err
		}
		for _, c := range configs {
			err = errors.Join(err, c.Err)
			for _, entry := range c.Configs {
				if entry.Key == name && entry.MaybeValue() != value {
					err = errors.Join(err, fmt.Errorf("of %s it is %s", s.short(c.Name), entry.MaybeValue()))
				}
			}
		}
		return err
	})
}

// judge stops the forwarders, reads all topics and holds what they say against the rules.
func (s *scene) judge() {
	for _, p := range s.processes {
		if p.running() {
			p.stop()
		}
	}
	s.await("a last look at the commits", s.watch.look)
	covered, err := s.watch.result()
	if err != nil {
		s.wrongf("%v", err)
	}
	for _, l := range s.ladders() {
		for topic, rank := range l.ranks() {
			s.read(topic, rank)
		}
	}
	v := judge(s.kept, s.acked, covered, s.result.Told)
	s.result.Records = len(s.acked)
	s.result.Lost, s.result.Ahead, s.result.Early, s.result.Duplicates = v.lost, v.ahead, v.early, v.duplicates
	if v.told < s.result.Told {
		s.wrongf("the forwarder counts %d lost records, %d are gone", s.result.Told, v.told)
	}
	for _, text := range v.details {
		s.result.Details = append(s.result.Details, s.short(text))
	}
}
