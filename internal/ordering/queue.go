package ordering

import "container/heap"

// queue yields held records by due time, then by offset. Waits of one tier
// rise with the offset almost always, so that most records only pass the run,
// a list that is sorted as it grows; the others go through the heap.
//
// Records that were released or finished by another way than pop stay until
// they come up, and are dropped then.
type queue[T any] struct {
	run  []*Held[T]
	head int
	late lateHeap[T]
}

func before[T any](a, b *Held[T]) bool {
	return a.due < b.due || a.due == b.due && a.offset < b.offset
}

func (q *queue[T]) push(h *Held[T]) {
	if n := len(q.run); n == q.head || before(q.run[n-1], h) {
		q.run = append(q.run, h)
		return
	}
	heap.Push(&q.late, h)
}

// peek returns the first record that is still held.
func (q *queue[T]) peek() *Held[T] {
	for {
		h := q.peekAny()
		if h == nil || h.state == held {
			return h
		}
		q.pop()
	}
}

func (q *queue[T]) peekAny() *Held[T] {
	if q.head == len(q.run) {
		if len(q.late) == 0 {
			return nil
		}
		return q.late[0]
	}
	if len(q.late) > 0 && before(q.late[0], q.run[q.head]) {
		return q.late[0]
	}
	return q.run[q.head]
}

// pop drops what peekAny returned.
func (q *queue[T]) pop() {
	if len(q.late) > 0 && q.peekAny() == q.late[0] {
		heap.Pop(&q.late)
		return
	}
	q.run[q.head] = nil
	q.head++
	switch {
	case q.head == len(q.run):
		q.run, q.head = q.run[:0], 0
	case q.head > 1024 && q.head > len(q.run)/2:
		n := copy(q.run, q.run[q.head:])
		clear(q.run[n:])
		q.run, q.head = q.run[:n], 0
	}
}

func (q *queue[T]) countDue(now int64) int {
	n := 0
	q.eachDue(now, func(*Held[T]) { n++ })
	return n
}

func (q *queue[T]) eachDue(now int64, f func(*Held[T])) {
	for _, h := range q.run[q.head:] {
		if h.due > now {
			break
		}
		if h.state == held {
			f(h)
		}
	}
	for _, h := range q.late {
		if h.due <= now && h.state == held {
			f(h)
		}
	}
}

type lateHeap[T any] []*Held[T]

func (l lateHeap[T]) Len() int           { return len(l) }
func (l lateHeap[T]) Less(i, j int) bool { return before(l[i], l[j]) }
func (l lateHeap[T]) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// Push implements heap.Interface.
func (l *lateHeap[T]) Push(x any) { *l = append(*l, x.(*Held[T])) }

// Pop implements heap.Interface.
func (l *lateHeap[T]) Pop() any {
	old := *l
	n := len(old) - 1
	h := old[n]
	old[n] = nil
	*l = old[:n]
	return h
}
