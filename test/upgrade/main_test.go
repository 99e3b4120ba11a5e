package main

import (
	"io"
	"strings"
	"testing"
)

func TestTheCommandLineIsChecked(t *testing.T) {
	if o, err := parse(nil, io.Discard); err != nil || o.rate != 500 || o.brokers != 3 || o.seed == 0 || o.out != "out/upgrade.json" {
		t.Errorf("without arguments: %+v, %v", o, err)
	}
	for _, args := range []string{"-rate 0", "-brokers 2", "-hold -1s", "now", "-hold long"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
