package replay

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// frozenRate is the pace of a job in whose middle a replica is stopped: it takes some seconds.
const frozenRate = frozenLetters / 6

const inFlight = "redrive_replay_in_flight_records"

// freeze stops the replica that works on a job for longer than its lease, lets the other do the rest, and continues the first.
func (r *run) freeze(ctx context.Context, n int) error {
	if err := r.create(ctx, fmt.Sprintf("frozen-%d", n), frozenType(n), frozenRate); err != nil {
		return err
	}
	id := r.jobs[len(r.jobs)-1]
	var frozen *stage.Replica
	err := r.stage.Await(ctx, stage.Patience, "a replica in the middle of a job", func(ctx context.Context) error {
		job, err := r.stage.API.Job(ctx, id)
		if err != nil {
			return err
		}
		frozen = r.owner(job)
		if frozen == nil || job.Done < frozenLetters/4 {
			return fmt.Errorf("job %s is %s, owned by %q, %d done", id, job.State, job.Owner, job.Done)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e := r.stage.Event(stage.ReplicaFrozen)
	e.What = fmt.Sprintf("SIGSTOP of %s in job %s", frozen.Name, id)
	r.Say("%s", e.What)
	fencedBefore, err := frozen.Metric(ctx, "redrive_replay_fenced_total")
	if err != nil {
		return err
	}
	held, err := r.stop(ctx, frozen, n%2 == 0)
	if err != nil {
		return err
	}
	thaw := func() error {
		e.To = stage.NowMilli()
		return frozen.Thaw()
	}
	// One that is stopped would keep its caller waiting.
	var others []string
	for _, replica := range r.stage.Replicas {
		if replica != frozen {
			others = append(others, replica.API)
		}
	}
	api := stage.NewAPI(others...)
	defer api.Close()
	err = r.stage.Await(ctx, stage.Patience, "the other replica to do the rest", func(ctx context.Context) error {
		job, err := api.Job(ctx, id)
		if err == nil && job.State != "done" {
			err = fmt.Errorf("job %s is %s, owned by %q, %d of %d done", id, job.State, job.Owner, job.Done, job.Total)
		}
		return err
	})
	if err != nil {
		return errors.Join(err, thaw())
	}
	before, end, err := r.standing(ctx, api, id)
	if err := errors.Join(err, thaw()); err != nil {
		return err
	}
	if err := r.stage.AwaitReady(ctx); err != nil {
		return err
	}
	// Whatever it was about to do it does within a lease.
	if err := stage.Sleep(ctx, stage.Lease+2*time.Second); err != nil {
		return err
	}
	after, newEnd, err := r.standing(ctx, api, id)
	if err != nil {
		return err
	}
	for letter, was := range before {
		if is := after[letter]; is != was {
			r.frozenMarks++
			r.details.Tell("frozen_marks", "letter %d was %q and became %q when %s went on", letter, was, is, frozen.Name)
		}
	}
	sent := int(newEnd - end)
	r.frozenSends += sent
	r.frozenMost = max(r.frozenMost, sent)
	fenced, err := frozen.Metric(ctx, "redrive_replay_fenced_total")
	r.frozenFenced += int(fenced - fencedBefore)
	r.Say("%s went on: %d copies more, %d were with its client", frozen.Name, sent, held)
	return err
}

// stop stops a replica and tells how many records were with its client before. Full waits for many: no broker answers meanwhile.
func (r *run) stop(ctx context.Context, replica *stage.Replica, full bool) (held int, err error) {
	if full {
		if err := r.stage.Kafka.Pause(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stage.Kafka.Resume()) }()
		// A claim before that may have left less to hand over.
		within, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_ = r.stage.Await(within, 2*time.Second, "records with the client", func(ctx context.Context) error {
			n, err := replica.Metric(ctx, inFlight)
			if err == nil && n < stage.InFlight/2 {
				err = fmt.Errorf("%v records", n)
			}
			return err
		})
	}
	n, err := replica.Metric(ctx, inFlight)
	if err != nil {
		return 0, err
	}
	r.frozenHeld = max(r.frozenHeld, int(n))
	return int(n), replica.Freeze()
}

// owner is the replica that works on a job; nil for none.
func (r *run) owner(job stage.Job) *stage.Replica {
	for _, replica := range r.stage.Replicas {
		// host/pid/random
		if strings.Contains(job.Owner, "/"+strconv.Itoa(replica.PID())+"/") {
			return replica
		}
	}
	return nil
}

// standing is what the ledger says of the letters of a job, and how long the origin is.
func (r *run) standing(ctx context.Context, api *stage.API, job string) (map[int64]string, int64, error) {
	letters := map[int64]string{}
	err := api.Export(ctx, url.Values{"job": {job}}, func(l *stage.Letter) error {
		text := l.State + " " + l.StateAt.Format(time.RFC3339Nano)
		if l.Claim != nil {
			text += " by " + l.Claim.Owner + " under " + l.Claim.Fence
		}
		if l.Copy != nil {
			text += fmt.Sprintf(" at %s/%d@%d", l.Copy.Topic, l.Copy.Partition, l.Copy.Offset)
		}
		letters[l.ID] = text
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	ends, err := r.stage.Client.EndOffsets(ctx, topic.Origin)
	var sum int64
	for _, end := range ends {
		sum += end
	}
	return letters, sum, err
}
