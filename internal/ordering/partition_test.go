package ordering

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(ns int64) time.Time { return time.Unix(0, ns) }

func TestReleaseFollowsDueTimeThenOffset(t *testing.T) {
	p := New[string](10, nil)
	p.Add(10, at(300), 1, "c")
	p.Add(11, at(100), 1, "a")
	p.Add(12, at(100), 1, "b")
	p.Add(13, at(400), 1, "d")
	if h := p.Ready(at(99)); h != nil {
		t.Fatalf("offset %d was ready before its due time", h.Offset())
	}
	var got []string
	for h := p.Ready(at(1000)); h != nil; h = p.Ready(at(1000)) {
		got = append(got, h.Value)
		p.Release(h)
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Fatalf("released %v, want %v", got, want)
	}
}

func TestWatermarkWaitsForTheLowestUnfinishedRecord(t *testing.T) {
	p := New[int](5, nil)
	a, b, c := p.Add(5, at(0), 1, 0), p.Add(7, at(0), 1, 0), p.Add(8, at(0), 1, 0)
	for _, h := range []*Held[int]{a, b, c} {
		p.Release(h)
	}
	p.Finish(c)
	p.Finish(b)
	if got := p.Watermark(); got != 5 {
		t.Fatalf("watermark %d passed the record at 5 that is not finished", got)
	}
	p.Finish(a)
	if got := p.Watermark(); got != 9 {
		t.Fatalf("watermark = %d, want 9", got)
	}
}

func TestBlockersAreTheHeldRecordsInFrontOfFinishedOnes(t *testing.T) {
	p := New[int](0, nil)
	var hs []*Held[int]
	for i := range int64(6) {
		hs = append(hs, p.Add(i, at(i), 1, 0))
	}
	p.Release(hs[1])
	p.Finish(hs[3])
	var got []int64
	for _, h := range p.Blockers(10) {
		got = append(got, h.Offset())
	}
	if want := []int64{0, 2}; !slices.Equal(got, want) {
		t.Fatalf("blockers %v, want %v", got, want)
	}
	if got := p.Blockers(1); len(got) != 1 {
		t.Fatalf("%d blockers, want at most 1", len(got))
	}
}

func TestAFinishedRecordLetsGoOfItsValue(t *testing.T) {
	p := New[[]byte](0, nil)
	p.Add(0, at(0), 1, nil)
	h := p.Add(1, at(1), 4, []byte("body"))
	p.Finish(h)
	if h.Value != nil {
		t.Fatal("the queue still holds the body of a finished record")
	}
}

// TestWatermarkNeverPassesAnUnfinishedRecord drives a partition with any
// interleaving of adds, dues and acks, and restarts it from its last
// checkpoint at any moment, beside a model that is a plain set.
func TestWatermarkNeverPassesAnUnfinishedRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const top = 60
		exists := make([]bool, top) // offsets that hold a record; the others are gaps
		due := make([]int64, top)
		for i := range top {
			exists[i] = rapid.IntRange(0, 4).Draw(t, "exists") > 0
			due[i] = int64(rapid.IntRange(0, 50).Draw(t, "due"))
		}
		limit := rapid.SampledFrom([]int{4, 8, 4096}).Draw(t, "limit")
		acked := make([]bool, top) // by anyone, ever
		var (
			p      = New[int64](0, nil)
			now    int64
			read   int64
			flying []*Held[int64]
			commit Checkpoint
		)
		finish := func(h *Held[int64]) {
			acked[h.Offset()] = true
			p.Finish(h)
		}
		check := func() {
			for o := range p.Watermark() {
				if exists[o] && !acked[o] {
					t.Fatalf("watermark %d passed offset %d, which is not finished", p.Watermark(), o)
				}
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				if read < top && exists[read] {
					h := p.Add(read, at(due[read]), 1, read)
					if h == nil && !acked[read] {
						t.Fatalf("offset %d was skipped and is not finished", read)
					}
				}
				read = min(read+1, top)
			case 2:
				now += int64(rapid.IntRange(0, 20).Draw(t, "pass"))
				last := int64(-1)
				for h := p.Ready(at(now)); h != nil; h = p.Ready(at(now)) {
					if due[h.Offset()] > now {
						t.Fatalf("offset %d released %dns early", h.Offset(), due[h.Offset()]-now)
					}
					if due[h.Offset()] < last {
						t.Fatalf("offset %d released after a later due time", h.Offset())
					}
					last = due[h.Offset()]
					p.Release(h)
					flying = append(flying, h)
				}
			case 3, 4:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(t, "ack")
					finish(flying[i])
					flying = slices.Delete(flying, i, i+1)
				}
			case 5:
				commit = p.Checkpoint(limit)
				ranges, err := ParseRanges(commit.Done, commit.Watermark)
				if err != nil {
					t.Fatalf("parse own ranges: %v", err)
				}
				if len(commit.Done) > limit {
					t.Fatalf("ranges take %d bytes, limit %d", len(commit.Done), limit)
				}
				for _, r := range ranges {
					for o := r.From; o < r.To; o++ {
						if o < top && exists[o] && !acked[o] {
							t.Fatalf("commit names offset %d as finished, it is not", o)
						}
					}
				}
				if !commit.Full && commit.Covered != p.Finished() {
					t.Fatalf("covered %d of %d finished with room to spare", commit.Covered, p.Finished())
				}
			case 6:
				ranges, err := ParseRanges(commit.Done, commit.Watermark)
				if err != nil {
					t.Fatal(err)
				}
				p, read, flying = New[int64](commit.Watermark, ranges), commit.Watermark, nil
			}
			check()
		}
		// In the end everything finishes and the watermark is at the top.
		for ; read < top; read++ {
			if exists[read] {
				p.Add(read, at(due[read]), 1, read)
			}
		}
		for _, h := range flying {
			finish(h)
		}
		for h := p.Ready(at(1 << 40)); h != nil; h = p.Ready(at(1 << 40)) {
			p.Release(h)
			finish(h)
		}
		check()
		for o := range exists {
			if exists[o] && !acked[o] {
				t.Fatalf("offset %d was lost", o)
			}
		}
		if p.Waiting() != 0 || p.InFlight() != 0 || p.Bytes() != 0 {
			t.Fatalf("left over: %d waiting, %d in flight, %d bytes", p.Waiting(), p.InFlight(), p.Bytes())
		}
	})
}

func FuzzParseRanges(f *testing.F) {
	text, _ := Ranges{{12, 15}, {20, 21}}.AppendText(nil, 10, 100)
	f.Add(text, int64(10))
	f.Add([]byte("////////"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, watermark int64) {
		if watermark < 0 {
			return
		}
		ranges, err := ParseRanges(text, watermark)
		if err != nil {
			return
		}
		at := watermark
		for _, r := range ranges {
			if r.From <= at || r.To <= r.From {
				t.Fatalf("range %v does not rise above %d", r, at)
			}
			at = r.To
		}
		again, n := ranges.AppendText(nil, watermark, 1<<20)
		if n != len(ranges) {
			t.Fatalf("%d of %d ranges written", n, len(ranges))
		}
		back, err := ParseRanges(again, watermark)
		if err != nil || !slices.Equal(back, ranges) {
			t.Fatalf("round trip: %v, %v", back, err)
		}
	})
}

func BenchmarkDueOnArrival(b *testing.B) {
	p := New[int](0, nil)
	now := time.Unix(100, 0)
	b.ReportAllocs()
	for i := range b.N {
		p.Add(int64(i), at(int64(i)), 100, 1)
		h := p.Ready(now)
		p.Release(h)
		p.Finish(h)
	}
}
