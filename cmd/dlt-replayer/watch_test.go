package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/internal/command"
	"github.com/kafka-redrive/redrive/internal/replayer/api/client"
)

func TestTheBarShowsHowFarAReplayIs(t *testing.T) {
	var out bytes.Buffer
	b := &bar{to: &out}
	b.end() // Before it has begun.
	b.at(&client.Job{State: client.JobStateRunning, Total: 10, Done: 3, Failed: 1, Left: 6})
	if text := out.String(); !strings.Contains(text, "running, 1 not replayed") || !strings.Contains(text, "4/10") {
		t.Errorf("%q", text)
	}
	b.at(&client.Job{State: client.JobStateDone, Total: 10, Done: 9, Failed: 1})
	b.end()
}

// Where there is no terminal a line says how far it is, now and then, and at once that it is paused.
func TestPlainLinesShowHowFarAReplayIs(t *testing.T) {
	var out bytes.Buffer
	p := &plain{c: newCLI(command.Process{Stderr: &out}), last: time.Now()}
	job := &client.Job{ID: "J", State: client.JobStateRunning, Total: 10, Done: 3, Left: 7, PerSecond: 2}
	p.at(job)
	if out.Len() > 0 {
		t.Errorf("at once: %q", out.String())
	}
	p.last = time.Now().Add(-time.Minute)
	p.at(job)
	if text := out.String(); text != "job J: running, 10: replayed 3, failed 0, skipped 0, left 7, 2.0 letters a second\n" {
		t.Errorf("%q", text)
	}
	out.Reset()
	job.State = client.JobStatePaused
	p.at(job)
	if !strings.Contains(out.String(), "job J: paused") {
		t.Errorf("%q", out.String())
	}
}
