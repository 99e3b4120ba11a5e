package main

import (
	"io"
	"strings"
	"testing"
)

func TestWhatIsNotGivenDependsOnTheTarget(t *testing.T) {
	for args, want := range map[string]options{
		"":                  {kills: 20, rate: 2000, out: "out/chaos.json"},
		"-target index":     {kills: 30, rate: 20_000, letters: 1_000_000, out: "out/chaos-index.json"},
		"-target replay":    {kills: 30, rate: 1, letters: 50_000, out: "out/chaos-replay.json"},
		"-kills 0 -rate 10": {kills: 0, rate: 10, out: "out/chaos.json"},
		"-target replay -letters 7 -out x -ledger sqlite": {kills: 30, rate: 1, letters: 7, out: "x"},
	} {
		o, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if o.kills != want.kills || o.rate != want.rate || o.letters != want.letters || o.out != want.out || o.seed == 0 {
			t.Errorf("%q: %+v", args, o)
		}
	}
}

func TestTheCommandLineIsChecked(t *testing.T) {
	for _, args := range []string{
		"-target consumer", "-ledger mysql", "-brokers 2", "-letters -1", "-waits never", "-keys 0", "-rate 0", "-longest 1s", "index",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
