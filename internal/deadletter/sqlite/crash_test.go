package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/deadletter/sqlite"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// some is how many letters the child writes at once.
const some = 50

// scribble is the child: it indexes and replays letters for as long as it lives, and prints what the ledger has acknowledged.
func scribble(path string) int {
	if err := scribbling(context.Background(), path); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

func scribbling(ctx context.Context, path string) error {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	id := deadletter.TopicID{1}
	for {
		next, err := l.Next(ctx, id, "orders.dlt", 0, 0)
		if err != nil {
			return err
		}
		b := deadletter.Batch{TopicID: id, Topic: "orders.dlt", Expected: next, Next: next + some}
		for i := range int64(some) {
			b.Letters = append(b.Letters, deadletter.Letter{
				Place: deadletter.Place{Offset: next + i}, MessageID: fmt.Sprint("m-", next+i), Key: []byte("k"), Origin: "orders", OriginOffset: next + i,
			})
			b.Payloads = append(b.Payloads, deadletter.Payload{Value: []byte("v")})
		}
		if err := l.Index(ctx, b); err != nil {
			return err
		}
		fmt.Println("indexed", b.Next)
		done, err := replayed(ctx, l)
		if err != nil {
			return err
		}
		fmt.Println("replayed", done)
	}
}

// replayed replays the letters of one job, one that a child before it has left or a new one, and returns how many it did.
func replayed(ctx context.Context, l *sqlite.Ledger) (int, error) {
	job, err := l.LeaseJob(ctx, "child", time.Millisecond)
	if err != nil {
		return 0, err
	}
	if job == nil {
		if _, _, err := l.CreateJob(ctx, deadletter.JobSpec{}, deadletter.Filter{States: []deadletter.State{deadletter.Dead}}); err != nil {
			return 0, err
		}
		if job, err = l.LeaseJob(ctx, "child", time.Millisecond); err != nil || job == nil {
			return 0, err
		}
	}
	items, err := l.Items(ctx, job.ID, 1, 10*some, deadletter.ItemOpen)
	if err != nil {
		return 0, err
	}
	wants := []deadletter.Want{}
	for _, item := range items {
		wants = append(wants, deadletter.Want{Seq: item.Seq, Letter: item.Letter.ID, Target: deadletter.Target{Topic: "orders"}})
	}
	claimed, err := l.Claim(ctx, job.ID, job.Fence, wants)
	if err != nil {
		return 0, err
	}
	outcomes := []deadletter.Outcome{}
	for _, c := range claimed {
		if c.Granted != nil {
			outcomes = append(outcomes, deadletter.Outcome{Claim: *c.Granted, Seq: c.Want.Seq, Copy: deadletter.Target{Topic: "orders", Offset: c.Want.Letter}})
		}
	}
	fenced, err := l.Finish(ctx, outcomes)
	if err != nil {
		return 0, err
	}
	if _, err := l.EndJob(ctx, job.ID, job.Fence); err != nil {
		return 0, err
	}
	return len(outcomes) - len(fenced), nil
}

// TestKilled kills a process that writes, at any moment, again and again, and holds the ledger against what it had acknowledged.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	var indexed, done int64
	for round := range 8 {
		i, d := killed(t, path, 1+rand.IntN(12), time.Duration(rand.IntN(10))*time.Millisecond)
		indexed, done = max(indexed, i), done+d
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		compareCrashed(t, l, indexed, done)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if indexed == 0 || done == 0 {
		t.Errorf("the children wrote nothing: %d indexed, %d replayed", indexed, done)
	}
	t.Logf("%d letters indexed and %d replayed by 8 children, each of which was killed", indexed, done)
}

// killed runs a child, kills it some time after its n-th acknowledgement, and returns what it printed.
func killed(t *testing.T, path string, n int, pause time.Duration) (indexed, done int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childPath+"="+path)
	cmd.Stderr = os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := read.Close(); err != nil {
			t.Error(err)
		}
	}()
	cmd.Stdout = write
	ended := make(chan error, 1)
	if err := testkit.StartChild(cmd, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	for lines := bufio.NewScanner(read); lines.Scan(); {
		var figure int64
		word, number, _ := strings.Cut(lines.Text(), " ")
		if _, err := fmt.Sscan(number, &figure); err != nil {
			t.Errorf("the child printed %q", lines.Text())
		}
		if word == "indexed" {
			indexed = figure
		} else {
			done += figure
		}
		if n--; n == 0 {
			timer = time.AfterFunc(pause, func() { _ = cmd.Process.Kill() })
		}
	}
	if timer == nil {
		t.Error("the child ended before it was killed")
	}
	if err := <-ended; err == nil {
		t.Error("the child ended by itself")
	}
	return indexed, done
}

// compareCrashed compares a ledger with what was acknowledged before the kill: nothing of that may be missing, and one more
// transaction may be there.
func compareCrashed(t *testing.T, l *sqlite.Ledger, indexed, done int64) {
	t.Helper()
	next, err := l.Next(t.Context(), deadletter.TopicID{1}, "orders.dlt", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if next != indexed && next != indexed+some {
		t.Errorf("the partition is indexed to %d, %d was acknowledged", next, indexed)
	}
	seen := map[int64]bool{}
	states := map[deadletter.State]int64{}
	for page := (deadletter.Page{Order: deadletter.Oldest, Limit: 10_000}); ; {
		part, err := l.Letters(t.Context(), deadletter.Filter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, letter := range part.Letters {
			payload, err := l.Payload(t.Context(), letter.ID)
			if err != nil {
				t.Fatal(err)
			}
			if offset := letter.Place.Offset; seen[offset] || offset >= next || payload == nil {
				t.Errorf("letter %d: seen before %t, bytes %v", offset, seen[offset], payload)
			}
			seen[letter.Place.Offset] = true
			states[letter.State]++
		}
		if page.After = part.Next; part.Next == "" {
			break
		}
	}
	if int64(len(seen)) != next {
		t.Errorf("%d letters below offset %d", len(seen), next)
	}
	jobs, err := l.Jobs(t.Context(), "", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var counted int64
	for _, job := range jobs {
		items, err := l.Items(t.Context(), job.ID, 0, 100_000, deadletter.ItemDone)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(items)) != job.Done || job.State == deadletter.JobDone && job.Left() != 0 {
			t.Errorf("job %+v has %d items done", job, len(items))
		}
		counted += job.Done
	}
	if counted != states[deadletter.Replayed] || counted < done {
		t.Errorf("%d letters are replayed, %d items done, %d of them acknowledged", states[deadletter.Replayed], counted, done)
	}
}
