// Package metrics answers whether what an expression of PromQL reads is there: whether the programs register the metrics
// under these names and with these labels.
//
// The model. [Known] builds both programs from a configuration as their main functions do, and takes from them what they
// have registered; nothing is kept by hand. [Known.Check] parses an expression and names what it reads and nobody has.
//
// It promises to find a metric that is misspelled, and a label that a metric does not have, in a selector or in a grouping over
// one metric. It does not know which values a label takes, and knows the labels that Prometheus adds by name only.
package metrics

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/kafka-redrive/redrive/internal/app"
	"github.com/kafka-redrive/redrive/internal/config"
)

// Known are the labels of each metric, by name.
type Known map[string][]string

// target are labels that are of the scraped process and not of the metric.
var target = []string{"namespace", "job", "instance", "pod"}

// settings have everything on that brings metrics of its own.
const settings = `
kafka: {brokers: ["127.0.0.1:1"]}
forwarder: {admin: {address: "127.0.0.1:0"}}
replayer: {admin: {address: "127.0.0.1:0"}, api: {address: "127.0.0.1:0"}}
ledger: {dataDir: %q}
tracing: {enabled: true}
topics: [{origin: orders, tiers: [10s, 1m]}]
`

// Registered are the metrics of both programs. It needs a folder that it may write to.
func Registered(ctx context.Context, dir string) (Known, error) {
	path := filepath.Join(dir, "topics.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, settings, dir), 0o600); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		return nil, err
	}
	known := Known{}
	for _, registered := range []func(context.Context, app.Options) ([]app.Metric, error){app.ForwarderMetrics, app.ReplayerMetrics} {
		all, err := registered(ctx, app.Options{Config: cfg, ConfigPath: path})
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			known[m.Name] = m.Labels
		}
	}
	return known, nil
}

// Parser reads expressions.
func Parser() parser.Parser { return parser.NewParser(parser.Options{}) }

// Check parses an expression and tells what is wrong with what it reads.
func (k Known) Check(expr string) []error {
	parsed, err := Parser().ParseExpr(expr)
	if err != nil {
		return []error{fmt.Errorf("parse %s: %w", expr, err)}
	}
	var errs []error
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			errs = append(errs, k.selector(n)...)
		case *parser.AggregateExpr:
			errs = append(errs, k.grouping(n)...)
		}
		return nil
	})
	return errs
}

func (k Known) selector(s *parser.VectorSelector) (errs []error) {
	has, err := k.labelsOf(s.Name)
	if err != nil {
		return []error{err}
	}
	for _, m := range s.LabelMatchers {
		if m.Name != model.MetricNameLabel && !slices.Contains(has, m.Name) {
			errs = append(errs, fmt.Errorf("%s has no label %s", s.Name, m.Name))
		}
	}
	return errs
}

// grouping holds the labels of sum by (...) and the like to those of all metrics inside, and those that label_replace makes there.
func (k Known) grouping(a *parser.AggregateExpr) (errs []error) {
	if a.Without {
		return nil
	}
	var has []string
	parser.Inspect(a.Expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			more, _ := k.labelsOf(n.Name) // An unknown one is told of once.
			has = append(has, more...)
		case *parser.Call:
			if made, ok := n.Args[min(1, len(n.Args)-1)].(*parser.StringLiteral); ok && n.Func.Name == "label_replace" {
				has = append(has, made.Val)
			}
		}
		return nil
	})
	for _, label := range a.Grouping {
		if !slices.Contains(has, label) {
			errs = append(errs, fmt.Errorf("%s is grouped by %s, which nothing inside has", a, label))
		}
	}
	return errs
}

// labelsOf are the labels of the series of that name: those of a histogram have names and a label of their own. What is
// registered does not say of which type it is; all histograms are of times.
func (k Known) labelsOf(series string) ([]string, error) {
	if has, ok := k[series]; ok {
		return append(slices.Clone(has), target...), nil
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name, ok := strings.CutSuffix(series, suffix)
		if has, known := k[name]; ok && known && strings.HasSuffix(name, "_seconds") {
			return append(slices.Clone(has), append(target, "le")...), nil
		}
	}
	return nil, fmt.Errorf("no program registers %s", series)
}
