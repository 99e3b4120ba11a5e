package index

import (
	"slices"
	"testing"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

func TestBatchDropsWhatTheLedgerHas(t *testing.T) {
	at := func(offsets ...int64) (letters []deadletter.Letter) {
		for _, o := range offsets {
			letters = append(letters, deadletter.Letter{Place: deadletter.Place{Offset: o}})
		}
		return letters
	}
	for _, c := range []struct {
		name         string
		next         int64
		left         []int64
		lost, begins int64
	}{
		{"nothing", 10, []int64{15, 16, 19}, 5, 10},
		{"less", 7, []int64{15, 16, 19}, 5, 10},
		{"what was lost, which is said only once", 15, []int64{15, 16, 19}, 0, 15},
		{"some letters", 17, []int64{19}, 0, 17},
		{"all letters and not the hole behind", 21, nil, 0, 21},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &batch{letters: at(15, 16, 19), payloads: make([]deadletter.Payload, 3), from: 10, next: 25, lost: 5}
			b.passTo(c.next)
			var left []int64
			for _, l := range b.letters {
				left = append(left, l.Place.Offset)
			}
			if !slices.Equal(left, c.left) || len(b.payloads) != len(left) || b.lost != c.lost || b.from != c.begins || b.next != 25 {
				t.Errorf("left %v with %d payloads, lost %d, from %d", left, len(b.payloads), b.lost, b.from)
			}
		})
	}
}
