// Package rules holds the alerts of the chart to what is promised of them, by Prometheus' own engine.
//
// The model. The chart is rendered with its defaults; the rules that come out are those of deploy/alerts, for a Prometheus
// without the chart. deploy/alerts/redrive.rules.test.yaml, which promtool runs as well, feeds them series and says at which
// moments which alerts are firing with which labels and annotations, and which are not.
//
// It promises that each alert has a test in which it fires, one just below its threshold, and one of normal work with a
// million waiting records, and that whatever a rule reads is registered by the programs. There are only tests.
package rules
