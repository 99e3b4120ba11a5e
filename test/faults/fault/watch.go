package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// watch looks at the commits of a group again and again, and remembers when it first saw each offset covered by one: below
// it, or in the ranges beside it.
type watch struct {
	client *testkit.Client
	group  string

	// mu is held for a whole look, so that an older answer is never noted after a newer one, and by whoever must know that
	// nobody looks.
	mu      sync.Mutex
	made    map[string]int // how often a topic was made again
	marks   map[place]int64
	covered map[place]time.Time
	blind   bool
	strange error // a commit that is not the forwarder's
}

func newWatch(client *testkit.Client, group string) *watch {
	return &watch{client: client, group: group, made: map[string]int{}, marks: map[place]int64{}, covered: map[place]time.Time{}}
}

// every is how often run looks.
const every = 200 * time.Millisecond

// run looks until ctx ends. A look that fails, as while the coordinator is down, is left out.
func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = w.look(ctx)
	}
}

// look notes what is committed now.
func (w *watch) look(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	offsets, err := w.client.CommittedOffsets(ctx, w.group)
	if err != nil || w.blind {
		return err
	}
	w.note(time.Now(), offsets) // Whatever a commit covers must have been written by now.
	return nil
}

func (w *watch) note(now time.Time, offsets kadm.Offsets) {
	for topic, partitions := range offsets {
		name := incarnation(topic, w.made[topic])
		for partition, o := range partitions {
			done, err := parseMetadata(o.Metadata, o.At)
			if err != nil {
				w.strange = fmt.Errorf("commit of %s/%d at %d: %w", topic, partition, o.At, err)
				continue
			}
			mark := place{name, partition, 0}
			w.cover(now, mark, w.marks[mark], o.At)
			w.marks[mark] = max(w.marks[mark], o.At)
			for _, r := range done {
				w.cover(now, mark, r.From, r.To)
			}
		}
	}
}

func (w *watch) cover(now time.Time, p place, from, to int64) {
	for p.offset = from; p.offset < to; p.offset++ {
		if _, ok := w.covered[p]; !ok {
			w.covered[p] = now
		}
	}
}

// parseMetadata reads the ranges of finished offsets from the metadata of a commit: redrive/1 COUNT RANGES. An operator's
// commit has none.
func parseMetadata(text string, watermark int64) (ordering.Ranges, error) {
	if text == "" {
		return nil, nil
	}
	fields := strings.Split(text, " ")
	if len(fields) != 3 || fields[0] != "redrive/1" {
		return nil, fmt.Errorf("the metadata %q is not of the form redrive/1 COUNT RANGES", text)
	}
	return ordering.ParseRanges([]byte(fields[2]), watermark)
}

// shut keeps the watch from looking while an operator commits what is wrong, until open.
func (w *watch) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = true
}

func (w *watch) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = false
}

// result is what the watch has seen so far.
func (w *watch) result() (map[place]time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.covered) == 0 && w.strange == nil {
		return nil, errors.New("the watch has seen no commit")
	}
	return maps.Clone(w.covered), w.strange
}
