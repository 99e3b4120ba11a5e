// Package expiry answers which dead letters, and which records that still wait, retention is about to remove.
//
// The model: the ledger knows when each letter was written to its topic, and the settings of the topic say how long records stay
// there, see [kafka.Retention]. Both together give a moment before which a letter is not removed. A letter counts as expiring
// when that moment lies less than a given time ahead, or has passed, and the letter is dead or claimed and has no copy in the
// ledger. Once a minute the settings are asked for and the letters counted.
//
// It promises to be early and never late, as far as age goes: brokers remove whole segments, and a segment only when its newest
// record is old enough, so that a letter may outlive its moment by as much as its segment is long. It can not see when the size of
// a partition, somebody's DeleteRecords or a shorter retention to come will remove a letter. It changes nothing.
//
// A Radar is safe for concurrent use; its goroutine ends with Run.
package expiry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/issue"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/wait"
)

const (
	// lookInterval is how often the letters are counted; at first, when the index may not be far yet, it grows from settle.
	lookInterval = time.Minute
	settle       = 10 * time.Second
	// settingsLast is how old the settings of the topics may be where somebody asks.
	settingsLast = 5 * time.Second
	// askTimeout bounds one question to the brokers, countTimeout one to the ledger.
	askTimeout   = 15 * time.Second
	countTimeout = time.Minute
	// overdue is how long a record must have been due for it to count as one that waits for too long.
	overdue = time.Minute
	// ever is later than any letter.
	ever = 100 * 365 * 24 * time.Hour
)

// Topic is one entry of the configuration.
type Topic struct {
	// DeadLetters is the topic of its letters.
	DeadLetters string
	// Waiting are its inbox and tiers.
	Waiting []Room
}

// Room is a topic in which records wait.
type Room struct {
	Topic string
	// Wait is the longest that a record waits there by intent.
	Wait time.Duration
}

// Ledger is what of a ledger the radar needs.
type Ledger interface {
	Letters(ctx context.Context, filter deadletter.Filter, page deadletter.Page) (deadletter.Letters, error)
	Count(ctx context.Context, filter deadletter.Filter) (int64, error)
}

// Options are the settings of a Radar. Client, Topics and Ledger are required.
type Options struct {
	// Client asks the brokers. It stays the caller's.
	Client *kgo.Client
	Topics []Topic
	Ledger Ledger
	// Group is the consumer group of the forwarder, whose commits say what still waits.
	Group string
	// Within is how long before its moment a letter counts as expiring. Zero: 72 h.
	Within time.Duration
	// Logger receives what an operator should know. Nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. Nil: they are not registered.
	Registerer prometheus.Registerer
}

// Radar looks ahead. Make one with New, run it once.
type Radar struct {
	opts    Options
	log     *slog.Logger
	letters []string // topics of letters
	rooms   map[string]Room
	// owner is the topic of letters that a room belongs to.
	owner map[string]string

	asking sync.Mutex // lets one question at a time through
	mu     sync.Mutex // guards the following
	kept   map[string]kafka.Kept
	asked  time.Time
	counts map[string]Expiring // of the last look
}

// Expiring is what of the letters of one topic retention is about to remove.
type Expiring struct {
	kafka.Kept
	// Count is how many letters are expiring.
	Count int64
	// Soonest is the moment of the first letter that is dead or claimed and not kept; zero where there is none, or none that is
	// ever removed by age.
	Soonest time.Time
}

// New checks the options. It asks nobody.
func New(opts Options) (*Radar, error) {
	switch {
	case opts.Client == nil:
		return nil, errors.New("expiry: a client is required")
	case opts.Ledger == nil:
		return nil, errors.New("expiry: a ledger is required")
	case len(opts.Topics) == 0:
		return nil, errors.New("expiry: at least one topic is required")
	}
	opts.Within = cmp.Or(opts.Within, 72*time.Hour)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Radar{opts: opts, log: opts.Logger.With("component", "expiry"), rooms: map[string]Room{}, owner: map[string]string{}}
	for _, t := range opts.Topics {
		if !slices.Contains(r.letters, t.DeadLetters) {
			r.letters = append(r.letters, t.DeadLetters)
		}
		for _, room := range t.Waiting {
			r.rooms[room.Topic], r.owner[room.Topic] = room, t.DeadLetters
		}
	}
	slices.Sort(r.letters)
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(&collector{r}); err != nil {
			return nil, fmt.Errorf("register the metrics: %w", err)
		}
	}
	return r, nil
}

// Within is how long before its moment a letter counts as expiring where nobody says otherwise.
func (r *Radar) Within() time.Duration { return r.opts.Within }

// Run looks once a minute, less often where counting takes long, until ctx ends.
func (r *Radar) Run(ctx context.Context) {
	if r.opts.Registerer != nil {
		defer r.opts.Registerer.Unregister(&collector{r})
	}
	silent := false
	for next := settle; ; next = min(2*next, lookInterval) {
		began := time.Now()
		err := r.look(ctx, began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !silent:
			r.log.WarnContext(ctx, "what is about to expire is not known, it is looked for again every minute", "err", err)
		case err == nil && silent:
			r.log.InfoContext(ctx, "what is about to expire is known again")
		}
		silent = err != nil
		if !wait.For(ctx, max(next, 20*time.Since(began))) {
			return
		}
	}
}

// look counts what is expiring.
func (r *Radar) look(ctx context.Context, now time.Time) error {
	kept, err := r.settings(ctx, 0)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, countTimeout)
		defer cancel()
		var counts []Expiring
		if counts, err = r.count(ctx, kept, r.letters, r.opts.Within, now); err == nil {
			r.show(ctx, counts)
			return nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts = nil // Old counts would pass for those of now.
	return err
}

// show makes counts those of now, and logs which topics have become an issue.
func (r *Radar) show(ctx context.Context, counts []Expiring) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.counts
	r.counts = make(map[string]Expiring, len(counts))
	for _, e := range counts {
		r.counts[e.Topic] = e
		if e.Count > 0 && before[e.Topic].Count == 0 {
			r.log.WarnContext(ctx, "retention is about to remove dead letters that nobody has replayed or kept",
				"topic", e.Topic, "count", e.Count, "within", r.opts.Within, "soonest", e.Soonest.UTC().Format(time.RFC3339))
		}
	}
}

// Count asks how many letters of the topics are expiring. What is not known of one topic is its Err.
func (r *Radar) Count(ctx context.Context, topics []string, within time.Duration) ([]Expiring, error) {
	kept, err := r.settings(ctx, settingsLast)
	if err != nil {
		return nil, err
	}
	return r.count(ctx, kept, topics, within, time.Now())
}

func (r *Radar) count(ctx context.Context, kept map[string]kafka.Kept, topics []string, within time.Duration, now time.Time) ([]Expiring, error) {
	var all []Expiring
	for _, topic := range topics {
		k, known := kept[topic]
		if !known {
			continue // Of a topic that the file does not name.
		}
		e := Expiring{Kept: k}
		if cut, ok := cutOf(k, now.Add(within)); ok {
			var err error
			if e.Count, err = r.opts.Ledger.Count(ctx, deadletter.Filter{Expiring: []deadletter.Cut{cut}}); err != nil {
				return nil, err
			}
			cut.Before = now.Add(ever)
			first, err := r.opts.Ledger.Letters(ctx, deadletter.Filter{Expiring: []deadletter.Cut{cut}}, deadletter.Page{Order: deadletter.Oldest, Limit: 1})
			if err != nil {
				return nil, err
			}
			if len(first.Letters) > 0 {
				e.Soonest, _ = k.Until(first.Letters[0].DeadAt)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

func cutOf(k kafka.Kept, until time.Time) (deadletter.Cut, bool) {
	if k.Err != nil {
		return deadletter.Cut{}, false
	}
	before, ok := k.Before(until)
	return deadletter.Cut{TopicID: k.ID, Topic: k.Topic, Before: before}, ok
}

// Cuts are what selects the letters of the topics that retention may take within a time; none where it never takes any.
func (r *Radar) Cuts(ctx context.Context, topics []string, within time.Duration) ([]deadletter.Cut, error) {
	kept, err := r.settings(ctx, settingsLast)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(within)
	var cuts []deadletter.Cut
	for _, topic := range topics {
		k, known := kept[topic]
		if !known {
			continue
		}
		if cut, ok := cutOf(k, until); ok {
			cuts = append(cuts, cut)
		}
	}
	return cuts, nil
}

// Until is the moment before which a letter is not removed by age, by the settings that were asked for last. It is not ok where that
// is not known, or never happens.
func (r *Radar) Until(letter *deadletter.Letter) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, known := r.kept[letter.Place.Topic]
	if !known || k.Err != nil || k.ID != letter.Place.TopicID {
		return time.Time{}, false
	}
	return k.Until(letter.DeadAt)
}

// Topics are the configured topics of letters.
func (r *Radar) Topics() []string { return slices.Clone(r.letters) }

// Waiting are records that still wait although they should not, or can not be waited for: retention may take them within the time,
// and they are due for more than a minute, or only after that. The second result says what could not be looked at, and why.
func (r *Radar) Waiting(ctx context.Context, topics []string, within time.Duration) ([]Waiting, []error) {
	var names []string
	for name, owner := range r.owner {
		if slices.Contains(topics, owner) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kept, err := kafka.DescribeRetention(ctx, r.opts.Client, names)
	if err != nil {
		return nil, []error{fmt.Errorf("look at the topics that records wait in: %w", err)}
	}
	now := time.Now()
	var unknown []error
	before := map[string]time.Time{}
	for _, name := range names {
		k := kept[name]
		if k.Err != nil {
			unknown = append(unknown, k.Err)
			continue
		}
		cut, ok := k.Before(now.Add(within))
		if !ok {
			continue
		}
		if late := now.Add(-r.rooms[name].Wait - overdue); k.Age >= r.rooms[name].Wait && late.Before(cut) {
			cut = late // It is not due for long yet, and will be before it is taken.
		}
		before[name] = cut
	}
	found, err := kafka.WaitingBefore(ctx, r.opts.Client, r.opts.Group, before)
	if err != nil {
		return nil, append(unknown, err)
	}
	out := make([]Waiting, 0, len(found))
	for _, w := range found {
		out = append(out, Waiting{Waiting: w, Retention: kept[w.Topic].Retention, Wait: r.rooms[w.Topic].Wait})
	}
	return out, unknown
}

// Waiting are records of one partition that retention is about to take.
type Waiting struct {
	kafka.Waiting
	kafka.Retention
	// Wait is how long records wait there by intent.
	Wait time.Duration
}

// settings are those of the topics of letters, not older than maxAge.
func (r *Radar) settings(ctx context.Context, maxAge time.Duration) (map[string]kafka.Kept, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.mu.Lock()
	kept, asked := r.kept, r.asked
	r.mu.Unlock()
	if kept != nil && time.Since(asked) < maxAge {
		return kept, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kept, err := kafka.DescribeRetention(ctx, r.opts.Client, r.letters)
	if err != nil {
		return nil, fmt.Errorf("look at how long dead letters are kept: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept, r.asked = kept, time.Now()
	return kept, nil
}

// Troubles are the topics with letters that are expiring. It does not block.
func (r *Radar) Troubles() []issue.Trouble {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []issue.Trouble
	for _, topic := range r.letters {
		e := r.counts[topic]
		if e.Count == 0 {
			continue
		}
		found = append(found, issue.Trouble{
			Issue: issue.LettersExpiring, Topic: topic, Partition: -1,
			Detail: fmt.Sprintf("retention may take %d dead letters within %s, the first from %s on", e.Count, r.opts.Within, e.Soonest.UTC().Format(time.RFC3339)),
		})
	}
	return found
}

// collector exports what the last look has found.
type collector struct{ r *Radar }

var (
	expiringDesc = prometheus.NewDesc("redrive_letters_expiring",
		"Letters, dead or claimed and not kept in the ledger, that retention may take within replayer.expiry.within; absent while that is not known.", []string{"topic"}, nil)
	soonestDesc = prometheus.NewDesc("redrive_letter_expires_timestamp_seconds",
		"Before when retention takes no letter that is dead or claimed and not kept in the ledger; absent if there is none or it never does.", []string{"topic"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- expiringDesc
	ch <- soonestDesc
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	for topic, e := range c.r.counts {
		if e.Err != nil {
			continue
		}
		ch <- prometheus.MustNewConstMetric(expiringDesc, prometheus.GaugeValue, float64(e.Count), topic)
		if !e.Soonest.IsZero() {
			ch <- prometheus.MustNewConstMetric(soonestDesc, prometheus.GaugeValue, float64(e.Soonest.UnixMilli())/1000, topic)
		}
	}
}
