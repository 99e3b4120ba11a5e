package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kafka-redrive/redrive/test/faults/fault"
)

func TestOnlyARunWithoutAProblemExits0(t *testing.T) {
	good := func() fault.Result { return fault.Result{Records: 10, Seen: []string{"issue"}, Recovered: time.Second} }
	for name, c := range map[string]struct {
		change func(*fault.Result)
		err    error
		want   int
	}{
		"nothing":         {func(*fault.Result) {}, nil, exitOK},
		"told":            {func(r *fault.Result) { r.Told = 5 }, nil, exitOK},
		"allowed":         {func(r *fault.Result) { r.Duplicates, r.Allowed = 2, 2 }, nil, exitOK},
		"lost":            {func(r *fault.Result) { r.Lost = 1 }, nil, exitViolation},
		"ahead":           {func(r *fault.Result) { r.Ahead = 1 }, nil, exitViolation},
		"early":           {func(r *fault.Result) { r.Early = 1 }, nil, exitViolation},
		"duplicates":      {func(r *fault.Result) { r.Duplicates = 1 }, nil, exitViolation},
		"unseen":          {func(r *fault.Result) { r.Unseen = []string{"issue"} }, nil, exitViolation},
		"nothing seen":    {func(r *fault.Result) { r.Seen = nil }, nil, exitViolation},
		"not recovered":   {func(r *fault.Result) { r.Recovered = -1 }, nil, exitViolation},
		"wrong":           {func(r *fault.Result) { r.Wrong = []string{"exit code 0"} }, nil, exitViolation},
		"not played":      {func(*fault.Result) {}, errors.New("no broker"), exitFailed},
		"lost, no broker": {func(r *fault.Result) { r.Lost = 1 }, errors.New("no broker"), exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			result, r := good(), &report{}
			c.change(&result)
			first := good()
			r.add(&first, nil)
			r.add(&result, c.err)
			last := good()
			r.add(&last, nil)
			if r.code != c.want {
				t.Errorf("exit code %d, want %d", r.code, c.want)
			}
			var line strings.Builder
			r.print(&line, &result, c.err)
			if got := strings.Contains(line.String(), "PROBLEM"); got != (c.want != exitOK) {
				t.Errorf("the line tells of a problem: %v\n%s", got, line.String())
			}
		})
	}
}

func TestAnUnknownFaultIsRefused(t *testing.T) {
	var stderr strings.Builder
	if code := execute([]string{"-only", "no-such-fault"}, &strings.Builder{}, &stderr); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if !strings.Contains(stderr.String(), "no-such-fault") {
		t.Errorf("the fault is not named: %s", stderr.String())
	}
}
