package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kafka-redrive/redrive/internal/ordering"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// never is the moment of what did not happen.
const never = math.MaxInt64

// coverage remembers for each offset when it was first seen to be covered by a commit: below it, or in the ranges beside
// it. Moments are Unix milliseconds, and rise from call to call.
type coverage struct {
	topics  map[uint8]map[int32]*covered
	setBack []setBack
}

// setBack is a commit below an earlier one. It loses nothing, but what is between is forwarded again.
type setBack struct {
	seen      int64
	topic     uint8
	partition int32
	from, to  int64
}

type covered struct {
	watermark int64
	since     []int64 // By offset; 0 if not covered.
}

func newCoverage() *coverage { return &coverage{topics: map[uint8]map[int32]*covered{}} }

// observe takes one commit as it was seen at the moment now.
func (c *coverage) observe(now int64, topic uint8, partition int32, watermark int64, done ordering.Ranges) {
	if c.topics[topic] == nil {
		c.topics[topic] = map[int32]*covered{}
	}
	p := c.topics[topic][partition]
	if p == nil {
		p = &covered{}
		c.topics[topic][partition] = p
	}
	if watermark < p.watermark {
		c.setBack = append(c.setBack, setBack{now, topic, partition, p.watermark, watermark})
	}
	p.mark(now, p.watermark, watermark)
	p.watermark = max(p.watermark, watermark)
	for _, r := range done {
		p.mark(now, r.From, r.To)
	}
}

func (p *covered) mark(now, from, to int64) {
	if missing := to - int64(len(p.since)); missing > 0 {
		p.since = append(p.since, make([]int64, missing)...)
	}
	for offset := from; offset < to; offset++ {
		if p.since[offset] == 0 {
			p.since[offset] = now
		}
	}
}

// at is when the offset was first seen to be covered, or never.
func (c *coverage) at(topic uint8, partition int32, offset int64) int64 {
	p := c.topics[topic][partition]
	if p == nil || offset >= int64(len(p.since)) || p.since[offset] == 0 {
		return never
	}
	return p.since[offset]
}

// commitWatch looks at the commits of the forwarder's group again and again.
type commitWatch struct {
	client *testkit.Client
	group  string
	topics map[string]uint8 // The topics that are read.

	// mu is held for a whole look, so that an older answer is never noted after a newer one.
	mu       sync.Mutex
	coverage *coverage
	seen     int // Looks so far.
}

// errForeign is a commit that no forwarder should have made.
var errForeign = errors.New("a commit is not as the forwarder's are")

// every is how often run looks.
const every = 250 * time.Millisecond

// run looks until ctx ends. A look that fails, as while the coordinator is down, is left out.
func (w *commitWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		look, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _, err := w.look(look)
		cancel()
		if errors.Is(err, errForeign) {
			return err
		}
	}
}

// look notes what is committed now and returns when that was, and the commits.
func (w *commitWatch) look(ctx context.Context) (int64, kadm.Offsets, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	offsets, err := w.client.CommittedOffsets(ctx, w.group)
	if err != nil {
		return 0, nil, err
	}
	at, err := w.note(offsets)
	return at, offsets, err
}

func (w *commitWatch) note(offsets kadm.Offsets) (int64, error) {
	// Taken after the answer came: whatever a commit covers must have been written by now.
	now := time.Now().UnixMilli()
	w.seen++
	for name, partitions := range offsets {
		topic, read := w.topics[name]
		if !read {
			return 0, fmt.Errorf("%w: group %s has one for %s, which is no inbox and no tier", errForeign, w.group, name)
		}
		for partition, o := range partitions {
			done, err := parseMetadata(o.Metadata, o.At)
			if err != nil {
				return 0, fmt.Errorf("%w: that of %s/%d at %d: %w", errForeign, name, partition, o.At, err)
			}
			w.coverage.observe(now, topic, partition, o.At, done)
		}
	}
	return now, nil
}

// parseMetadata reads the ranges of finished offsets from the metadata of a commit: redrive/1 COUNT RANGES.
func parseMetadata(text string, watermark int64) (ordering.Ranges, error) {
	fields := strings.Split(text, " ")
	if len(fields) != 3 || fields[0] != "redrive/1" {
		return nil, fmt.Errorf("metadata %q is not of the form redrive/1 COUNT RANGES", text)
	}
	return ordering.ParseRanges([]byte(fields[2]), watermark)
}
