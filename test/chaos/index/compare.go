package index

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// expected is what the ledger should hold: what the topics do.
type expected struct {
	partitions map[place]*partition
	ids        map[string]string // of the topics, as hex
	count      int
}

// place is a partition of a dead-letter topic.
type place struct {
	topic     string
	partition int32
}

// partition holds the letters of one partition in the order of their offsets.
type partition struct {
	offsets []int64
	faces   []uint64
	digests [][32]byte
	rows    []uint8 // how many rows each has
}

// readTopics reads what is committed in the dead-letter topics.
func readTopics(ctx context.Context, s *stage.Stage) (*expected, error) {
	want := &expected{partitions: map[place]*partition{}, ids: map[string]string{}}
	for _, t := range s.Topics {
		details, err := s.Client.Admin().ListTopics(ctx, t.Letters())
		if err != nil {
			return nil, err
		}
		id := details[t.Letters()].ID
		want.ids[t.Letters()] = hex.EncodeToString(id[:])
		if err := s.Client.Read(ctx, t.Letters(), kgo.ReadCommitted(), func(r *kgo.Record) { want.add(t.Origin, r) }); err != nil {
			return nil, err
		}
	}
	return want, nil
}

func (e *expected) add(origin string, r *kgo.Record) {
	p := e.partitions[place{r.Topic, r.Partition}]
	if p == nil {
		p = &partition{}
		e.partitions[place{r.Topic, r.Partition}] = p
	}
	p.offsets = append(p.offsets, r.Offset)
	p.digests = append(p.digests, stage.Digest(r))
	p.faces = append(p.faces, faceOf(origin, r))
	p.rows = append(p.rows, 0)
	e.count++
}

// reached is nil when the index of every partition is beyond its last letter.
func (e *expected) reached(ctx context.Context, api *stage.API) error {
	progress, err := api.Progress(ctx)
	if err != nil {
		return err
	}
	next := map[place]int64{}
	for _, p := range progress {
		if p.TopicID == e.ids[p.Topic] {
			next[place{p.Topic, p.Partition}] = p.Next
		}
	}
	for at, p := range e.partitions {
		if last := p.offsets[len(p.offsets)-1]; next[at] <= last {
			return fmt.Errorf("%s/%d is indexed up to %d, its last letter is at %d", at.topic, at.partition, next[at], last)
		}
	}
	return nil
}

// findings are what the comparison found.
type findings struct {
	want                                       *expected
	seen                                       int
	missing, duplicate, phantom, differs, lost int
	details                                    stage.Details
}

// row takes one row of the ledger.
func (f *findings) row(l *stage.Letter) error {
	f.seen++
	p := f.want.partitions[place{l.Topic, l.Partition}]
	i, found := 0, false
	if p != nil && l.TopicID == f.want.ids[l.Topic] {
		i, found = slices.BinarySearch(p.offsets, l.Offset)
	}
	if !found {
		f.phantom++
		f.details.Tell("index_phantom", "row %d says %s/%d@%d, where no record is", l.ID, l.Topic, l.Partition, l.Offset)
		return nil
	}
	if p.rows[i]++; p.rows[i] > 1 {
		f.duplicate++
		f.details.Tell("index_duplicate", "row %d says %s/%d@%d as another does", l.ID, l.Topic, l.Partition, l.Offset)
		return nil
	}
	digest := hex.EncodeToString(p.digests[i][:])
	if face := faceOfLetter(l); l.Digest != digest || face != p.faces[i] || l.State != "dead" {
		f.differs++
		f.details.Tell("index_differs", "row %d of %s/%d@%d: digest %s, want %s; columns equal: %v; %+v", l.ID, l.Topic, l.Partition, l.Offset,
			l.Digest, digest, face == p.faces[i], *l)
	}
	return nil
}

// end counts what has no row.
func (f *findings) end() {
	for at, p := range f.want.partitions {
		for i, n := range p.rows {
			if n == 0 {
				f.missing++
				f.details.Tell("index_missing", "%s/%d@%d has no row", at.topic, at.partition, p.offsets[i])
			}
		}
	}
}

// progress counts what is said to be lost.
func (f *findings) progress(ctx context.Context, api *stage.API) error {
	progress, err := api.Progress(ctx)
	for _, p := range progress {
		if p.Lost > 0 {
			f.lost += int(p.Lost)
			f.details.Tell("index_lost", "%s/%d: %d offsets", p.Topic, p.Partition, p.Lost)
		}
	}
	return err
}

// faceOf is a hash of what a row should say of a record, beside its digest.
func faceOf(origin string, r *kgo.Record) uint64 {
	get := func(name, missing string) string {
		if v, ok := stage.Header(r, name); ok {
			return v
		}
		return missing
	}
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return hashOf(r.Key, get("redrive-message-id", fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)),
		get("redrive-original-topic", origin), get("redrive-original-partition", "-1"), get("redrive-original-offset", "-1"),
		get("redrive-reason", ""), get("redrive-error-type", ""), get("redrive-error-message", ""), get("redrive-attempt", "0"),
		get("redrive-deliveries", "0"), get("redrive-group", ""), strconv.Itoa(size))
}

func faceOfLetter(l *stage.Letter) uint64 {
	var key []byte
	if l.Key != nil {
		if key = l.Key.Base64; key == nil {
			key = []byte{}
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return hashOf(key, l.MessageID, l.Origin, number(int64(l.OriginPartition)), number(l.OriginOffset), l.Reason, l.ErrorType, l.ErrorText,
		number(int64(l.Attempt)), number(int64(l.Deliveries)), l.Group, number(l.Size))
}

func hashOf(key []byte, texts ...string) uint64 {
	h := fnv.New64a()
	if key == nil {
		_, _ = h.Write([]byte("null"))
	}
	_, _ = h.Write(key)
	for _, text := range texts {
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(text))
	}
	return h.Sum64()
}
