package rolling

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/kafka-redrive/redrive/test/chaos/stage"
)

// jobTime is about how long a job takes: long enough that most exchanges fall into one.
const jobTime = 5 * time.Second

// operate replays all dead letters, one job after the other, until rest is closed and none is left.
func (s *story) operate(ctx context.Context, rest <-chan struct{}) error {
	for {
		over := false
		select {
		case <-rest:
			over = true
		default:
		}
		var dead int64
		err := s.api.Insist(ctx, patience, func(ctx context.Context) (err error) {
			dead, err = s.api.Count(ctx, url.Values{"state": {"dead"}})
			return err
		})
		if err != nil {
			return fmt.Errorf("count the dead letters: %w", err)
		}
		if dead > 0 {
			if err := s.replay(ctx, dead); err != nil {
				return err
			}
			continue
		}
		if over {
			return nil
		}
		if err := stage.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// replay runs one job. Who asks for it may have to ask again, since the replica that he asks may stop; then he gets no second job.
func (s *story) replay(ctx context.Context, dead int64) error {
	rate := float64(dead) / jobTime.Seconds()
	request := fmt.Sprintf("job-%d", len(s.jobs))
	var job stage.Job
	err := s.api.Insist(ctx, patience, func(ctx context.Context) (err error) {
		job, err = s.api.CreateJob(ctx, request, stage.Replay{Filter: stage.Filter{Topic: []string{s.letters()}}, Reason: "upgrade", Rate: &rate})
		return err
	})
	if err != nil {
		return fmt.Errorf("create a job: %w", err)
	}
	s.jobs = append(s.jobs, job.ID)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	owners := map[string]bool{}
	for job.State != "done" {
		if err := stage.Sleep(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("job %s is %s, owned by %q, with %d of %d done, %d failed, %q: %w",
				job.ID, job.State, job.Owner, job.Done, job.Total, job.Failed, job.FirstError, err)
		}
		// Between two replicas nobody may answer for a moment.
		if now, err := s.api.Job(ctx, job.ID); err == nil {
			job = now
			if job.Owner != "" {
				owners[job.Owner] = true
			}
		}
	}
	if len(owners) > 1 {
		s.moved++
	}
	return nil
}

// replayed is how many letters are marked as replayed.
func (s *story) replayed(ctx context.Context) (int64, error) {
	return s.api.Count(ctx, url.Values{"state": {"replayed"}})
}
