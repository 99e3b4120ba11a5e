package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// role is what a topic is for.
type role uint8

const (
	roleInbox role = iota
	roleTier
	roleOrigin
	roleLetters
)

// topicInfo is one topic of the run; entries name it by its place in the table.
type topicInfo struct {
	name   string
	role   role
	ladder int
	tier   int // For roleTier.
}

// topics returns the table of all topics.
func (w *workload) topics() []topicInfo {
	var table []topicInfo
	for i, l := range w.ladders {
		table = append(table, topicInfo{name: l.inbox, role: roleInbox, ladder: i})
		for t := range l.tiers {
			table = append(table, topicInfo{name: l.tiers[t].topic, role: roleTier, ladder: i, tier: t})
		}
		table = append(table,
			topicInfo{name: l.name, role: roleOrigin, ladder: i},
			topicInfo{name: l.letter, role: roleLetters, ladder: i})
	}
	return table
}

// entry is one record of one topic, as far as the checker needs it. A run has millions.
type entry struct {
	offset    int64
	time      int64  // LogAppendTime, Unix milliseconds.
	due       int64  // redrive-available-at, Unix milliseconds; 0 if it is not there.
	name      uint64 // Hash of redrive-message-id; 0 if it is not there.
	id        uint32
	partition int32
	topic     uint8
	attempt   uint8 // The failure that the entry is about: for an inbox the one that brought it there.
	fate      fate  // What redrive-reason says.
}

// kind of an event.
type eventKind uint8

const (
	killed eventKind = iota
	brokerKilled
	stopped
)

func (k eventKind) String() string {
	return [...]string{"SIGKILL of the forwarder", "SIGKILL of a broker", "SIGTERM of the forwarder"}[k]
}

// event is something the harness did. Moments are Unix milliseconds.
type event struct {
	kind eventKind
	what string
	from int64 // Before the first signal.
	to   int64 // When its effect was over: the process started again.
	look int64 // When the commits were read after it, nothing of the process being left.
}

// history is all that is known after a run.
type history struct {
	work           *workload
	table          []topicInfo
	produced       uint32 // Records 0 to produced-1 were acknowledged.
	entries        []entry
	strangers      []string // Entries that belong to no record.
	corrupt        []string
	corrupted      int
	events         []*event
	covered        *coverage
	gracefulFrom   int64 // When the phase of graceful stops began.
	maxUncommitted int
}

// maxDetails bounds what is told of one kind of violation.
const maxDetails = 20

// read adds every record of every topic.
func (h *history) read(ctx context.Context, client *testkit.Client) error {
	for i, t := range h.table {
		err := client.Read(ctx, t.name, kgo.ReadUncommitted(), func(r *kgo.Record) { h.add(uint8(i), r) })
		if err != nil {
			return err
		}
	}
	return nil
}

// add takes one record that was read.
func (h *history) add(topic uint8, r *kgo.Record) {
	t := h.table[topic]
	where := fmt.Sprintf("%s/%d@%d", t.name, r.Partition, r.Offset)
	id, ok := numberOf(r.Headers)
	if !ok && len(r.Value) >= 4 {
		// A lost header is a changed record, not a lost one, as long as the value tells which it is.
		id, ok = binary.BigEndian.Uint32(r.Value[len(r.Value)-4:]), true
	}
	if !ok || id >= h.produced {
		h.strangers = appendCapped(h.strangers, where+" is no record of this run")
		h.corrupted++
		return
	}
	if diff := stage.Difference(h.work.record(id, time.Time{}), r); diff != "" {
		h.corrupt = appendCapped(h.corrupt, fmt.Sprintf("%s, record %d: %s", where, id, diff))
		h.corrupted++
	}
	e := entry{id: id, topic: topic, partition: r.Partition, offset: r.Offset, time: r.Timestamp.UnixMilli()}
	attempt := 0
	for i := range r.Headers {
		v := r.Headers[i].Value
		switch r.Headers[i].Key {
		case "redrive-message-id":
			e.name = hashOf(v)
		case "redrive-attempt":
			attempt, _ = strconv.Atoi(string(v))
		case "redrive-available-at":
			if at, err := time.Parse(time.RFC3339Nano, string(v)); err == nil {
				e.due = at.UnixMilli()
			}
		case "redrive-reason":
			for f := returned; f <= permanent; f++ {
				if f.reason() == string(v) {
					e.fate = f
				}
			}
		}
	}
	switch {
	case t.role == roleInbox:
		attempt++
	case t.role == roleTier && attempt == 0:
		attempt = t.tier + 1
	}
	e.attempt = uint8(min(max(attempt, 0), 255))
	h.entries = append(h.entries, e)
}

func appendCapped(list []string, text string) []string {
	if len(list) >= maxDetails {
		return list
	}
	return append(list, text)
}

func hashOf[T string | []byte](name T) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// positionName is the message id of a record that has none: its first position.
func positionName(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", topic, partition, offset)
}
