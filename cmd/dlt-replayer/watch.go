package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

const (
	// askInterval is how often a replay is asked how far it is. Short ones are over
	// within the first steps.
	askInterval = time.Second
	firstAsks   = 100 * time.Millisecond
	plainPause  = 5 * time.Second // between two lines where there is no terminal
)

// watch follows a replay to its end and tells what became of it. The end of ctx ends
// the watching and not the replay.
func (c *cli) watch(ctx context.Context, api *client.ClientWithResponses, id string) error {
	show := c.progress()
	wait := firstAsks
	for {
		job, err := repeat(ctx, patient, longPause, func(ctx context.Context) (*client.Job, error) { return askJob(ctx, api, id) })
		switch {
		case ctx.Err() != nil:
			show.end()
			return c.unwatched(id)
		case err != nil:
			show.end()
			c.Talk("%s", howTo(id))
			return fmt.Errorf("watch job %s: %w", id, err)
		}
		show.at(job)
		if job.State == client.JobStateDone || job.State == client.JobStateCancelled {
			show.end()
			return c.ended(job)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			show.end()
			return c.unwatched(id)
		case <-timer.C:
		}
		wait = min(2*wait, askInterval)
	}
}

// unwatched tells how to go on after an interrupt.
func (c *cli) unwatched(id string) error {
	c.Talk("\nJob %s goes on without being watched.\n%s", id, howTo(id))
	return errInterrupted
}

func howTo(id string) string {
	return fmt.Sprintf("  dlt-replayer jobs watch %s    shows how far it is\n  dlt-replayer jobs cancel %s   ends it\n  dlt-replayer jobs resume %s   goes on with one that was cancelled\n", id, id, id)
}

// ended tells what became of a replay.
func (c *cli) ended(job *client.Job) error {
	if c.Output == "table" {
		text := fmt.Sprintf("replayed %d, failed %d, skipped %d", job.Done, job.Failed, job.Skipped)
		if job.Left > 0 {
			text += fmt.Sprintf(", not sent %d", job.Left)
		}
		if job.FirstError != "" {
			text += "\nfirst error: " + command.Printable(job.FirstError)
		}
		if err := c.Print([]byte(text + "\n")); err != nil {
			return err
		}
	} else if err := c.printJob(job); err != nil {
		return err
	}
	if job.State == client.JobStateCancelled {
		c.Talk("Job %s was cancelled: dlt-replayer jobs resume %s goes on with the rest.\n", job.ID, job.ID)
	}
	if job.Done == job.Total {
		return nil
	}
	if job.Failed+job.Skipped > 0 {
		c.Talk("dlt-replayer jobs items %s --state failed,skipped shows which and why.\n", job.ID)
	}
	return errPartial
}

// shower shows how far a replay is.
type shower interface {
	at(job *client.Job)
	end()
}

// progress is a bar on a terminal, and plain lines elsewhere.
func (c *cli) progress() shower {
	if command.IsTerminal(c.Stderr) {
		return &bar{to: c.Stderr}
	}
	return &plain{c: c, last: time.Now()}
}

type plain struct {
	c     *cli
	last  time.Time
	state client.JobState
}

func (p *plain) at(job *client.Job) {
	ended := job.State == client.JobStateDone || job.State == client.JobStateCancelled
	paused := job.State != p.state && job.State == client.JobStatePaused
	p.state = job.State
	if ended || time.Since(p.last) < plainPause && !paused {
		return
	}
	p.last = time.Now()
	p.c.Talk("job %s: %s, %s%s\n", job.ID, job.State, tally(job), suffix(", ", speed(job)))
}

func (p *plain) end() {}

type bar struct {
	to  io.Writer
	bar *progressbar.ProgressBar
}

func (b *bar) at(job *client.Job) {
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(job.Total, progressbar.OptionSetWriter(b.to), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("letters"), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish())
	}
	text := string(job.State)
	if n := job.Failed + job.Skipped; n > 0 {
		text += fmt.Sprintf(", %d not replayed", n)
	}
	b.bar.Describe(text)
	_ = b.bar.Set64(job.Total - job.Left) // There is nobody to tell.
}

func (b *bar) end() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
