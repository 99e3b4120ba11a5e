package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/forwarder"
)

// Metric is a metric that a process registers.
type Metric struct {
	Name   string
	Labels []string // sorted
}

// ForwarderMetrics are all metrics that a forwarder of the options registers,
// whether they have a series yet or not, by name. It builds one, asks no broker and
// takes it down again.
func ForwarderMetrics(ctx context.Context, opts Options) (_ []Metric, err error) {
	a, err := New(ctx, opts)
	if err != nil {
		return nil, err
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	defer func() { err = errors.Join(err, a.Run(ended)) }()
	f, err := forwarder.New(a.forward) //nolint:contextcheck // It reads files and asks nobody.
	if err != nil {
		return nil, err
	}
	all, err := described(a.registry)
	return all, errors.Join(err, f.Run(ended))
}

// ReplayerMetrics does the same for a dlt-replayer. It opens no ledger.
func ReplayerMetrics(ctx context.Context, opts Options) (_ []Metric, err error) {
	r, err := NewReplayer(ctx, opts)
	if err != nil {
		return nil, err
	}
	all, err := described(r.registry)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return all, errors.Join(err, r.Run(ended))
}

// A description shows what is in it as a text only.
var (
	descText  = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .*, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constName = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	labelName = regexp.MustCompile(`\w+`)
)

func described(registry *prometheus.Registry) ([]Metric, error) {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		registry.Describe(ch)
	}()
	var all []Metric
	var errs []error
	for d := range ch {
		parts := descText.FindStringSubmatch(d.String())
		if parts == nil {
			errs = append(errs, fmt.Errorf("read %s", d))
			continue
		}
		m := Metric{Name: parts[1], Labels: labelName.FindAllString(parts[3], -1)}
		for _, label := range constName.FindAllStringSubmatch(parts[2], -1) {
			m.Labels = append(m.Labels, label[1])
		}
		slices.Sort(m.Labels)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all, errors.Join(errs...)
}
