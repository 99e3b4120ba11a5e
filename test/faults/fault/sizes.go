package fault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

func sizeFaults() []Fault {
	return []Fault{
		{
			Name: "record-too-large", What: "the origin takes no record of that size, or none with our headers",
			stage: stage{partitions: 1, settings: map[string]string{"max.message.bytes": strconv.Itoa(originLimit)}},
			play:  recordTooLarge,
		},
		{
			Name: "headers-too-large", What: "the tier takes the record, and not with the headers that we add",
			stage: stage{partitions: 1},
			play:  headersTooLarge,
		},
		{
			Name: "letter-too-large", What: "not even the dead letters take the record", Waits: true,
			stage: stage{partitions: 1},
			play:  letterTooLarge,
		},
	}
}

const (
	originLimit = 20_000
	// batchOverhead is what the smallest record of these scenes and its batch take beside the value, without headers: 61
	// bytes for the batch, and for the record its lengths, deltas and the key.
	batchOverhead = 61 + 15
)

// recordTooLarge has a record that is larger than the origin takes, and one that is so only by the headers of ours that a
// record keeps. Both become dead letters; their neighbours in the partition do not wait.
func recordTooLarge(s *scene) {
	p := s.start()
	n := s.several(500, 20)
	var records []*kgo.Record
	for i := range n {
		records = append(records, s.record(1000))
		if i == n/3 {
			records = append(records, s.record(originLimit+10_000))
		}
		if i == 2*n/3 {
			records = append(records, s.record(originLimit-batchOverhead))
		}
	}
	s.handInBatches(1, records...) // The limit is that of a batch.
	p.see(atLeast(2, "redrive_records_dead_lettered_total", label("reason", "too_large")))
	s.recovers()
	if back, letters := s.count(s.origin), s.count(s.deadLetters()); back != int64(n) || letters != 2 {
		s.wrongf("%d records are on the origin and %d in the dead letters, want %d and 2", back, letters, n)
	}
}

// headersTooLarge has a record that fits in the inbox to the byte, with a long error text: it must come back with less of
// our own text, and not die of it.
func headersTooLarge(s *scene) {
	const limit = 10_000
	s.set("max.message.bytes", strconv.Itoa(limit), s.inbox(), s.tier())
	p := s.start()
	r := s.record(limit - batchOverhead - 1200)
	with(r, "redrive-error-type", "Timeout")
	noise := make([]byte, 768) // Or it would be no matter once it is compressed.
	_, _ = rand.Read(noise)    // never fails
	with(r, "redrive-error-message", base64.StdEncoding.EncodeToString(noise))
	full := s.fill(r, limit)
	s.hand(full) // Alone: the limit is that of a batch.
	s.handInBatches(20, s.some(s.ladder, s.several(500, 20))...)
	p.see(atLeast(1, "redrive_records_shortened_total", label("source", s.inbox())))
	s.recovers()
	copies, err := s.client.ReadAll(s.ctx, s.tier(), kgo.ReadCommitted())
	s.check(err)
	for _, c := range copies {
		if text, _ := header(c, "redrive-error-message"); len(text) == 1024 {
			s.wrongf("the error text stands in full in the tier: the record was not too large for it")
		}
	}
	if letters := s.count(s.deadLetters()); letters > 0 {
		s.wrongf("%d records are in the dead letters because of the headers that we add", letters)
	}
}

// fill adds to the value of a record until it is the largest that a topic of that limit takes: by the count of the client,
// which asks the broker last.
func (s *scene) fill(r *kgo.Record, limit int) *kgo.Record {
	size := 61 + 11 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 4 + len(h.Key) + len(h.Value)
	}
	more := s.record(max(0, limit-size-20))
	r.Value = append(r.Value, more.Value[:max(0, limit-size-20)]...)
	return r
}

// letterTooLarge has a verdict of dead on a record that the dead letters do not take: a pointer stands for it, its offset is
// not passed, and the others go on. With a higher limit the record itself follows.
func letterTooLarge(s *scene) {
	s.set("max.message.bytes", "4000", s.deadLetters())
	p := s.start()
	large := s.record(30_000)
	with(large, "redrive-action", "dead")
	n := s.several(500, 20)
	s.hand(large)
	s.hand(s.some(s.ladder, n)...)
	p.see(issues("", "letter-too-large"))
	s.awaitBack(s.ladder, n)
	if at := s.committed(s.inbox()); at != 0 {
		s.wrongf("the commit of the inbox went to %d, past a record whose bytes are nowhere else", at)
	}
	s.await("a pointer in the dead letters", func(ctx context.Context) error {
		letters, err := s.client.ReadAll(ctx, s.deadLetters(), kgo.ReadCommitted())
		if err != nil {
			return err
		}
		if len(letters) != 1 || letters[0].Value != nil {
			return fmt.Errorf("%d letters are there", len(letters))
		}
		if source, ok := header(letters[0], "redrive-letter-source"); !ok || source != s.inbox()+"/0/0" {
			return errors.New("the letter does not point at its source")
		}
		return nil
	})
	s.set("max.message.bytes", "1048588", s.deadLetters())
	s.recovers()
}
