// Package dashboards makes the Grafana dashboards of the chart: an overview, and one of a single topic.
//
// The model. A [Dashboard] is the JSON that Grafana reads, written down as far as it is used here. Rows answer one question
// each, in the order in which somebody who was woken asks them; a panel has a unit, thresholds where there is a better and a worse, and
// the page of the runbook that begins with it. [Overview] and [Topic] are the two; the test writes them to the chart with -update.
//
// It promises that both are the same whenever they are made, and that their data source and their topics are variables. A
// Dashboard is not changed once it is made.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Dashboard is what Grafana reads of one.
type Dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"` // 1: the crosshair is shared
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Links         []Link     `json:"links"`
	Templating    templating `json:"templating"`
	Panels        []*Panel   `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Link leads elsewhere.
type Link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type,omitempty"`
	URL         string   `json:"url,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	TargetBlank bool     `json:"targetBlank,omitempty"`
	KeepTime    bool     `json:"keepTime,omitempty"`
	IncludeVars bool     `json:"includeVars,omitempty"`
}

type templating struct {
	List []Variable `json:"list"`
}

// Variable is a choice at the head of a dashboard.
type Variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Query      string      `json:"query"`
	Datasource *datasource `json:"datasource,omitempty"`
	Refresh    int         `json:"refresh"` // 1: on load, 2: when the time range changes
	Sort       int         `json:"sort,omitempty"`
	Multi      bool        `json:"multi,omitempty"`
	IncludeAll bool        `json:"includeAll,omitempty"`
	AllValue   string      `json:"allValue,omitempty"`
	Current    *current    `json:"current,omitempty"`
}

type current struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Panel is one box, or the title of a row.
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description,omitempty"`
	GridPos     gridPos     `json:"gridPos"`
	Datasource  *datasource `json:"datasource,omitempty"`
	FieldConfig *fields     `json:"fieldConfig,omitempty"`
	Options     any         `json:"options,omitempty"`
	Targets     []Target    `json:"targets,omitempty"`
	Links       []Link      `json:"links,omitempty"`
	Transforms  []transform `json:"transformations,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Target is a query.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat,omitempty"`
	Instant      bool   `json:"instant,omitempty"`
	Range        bool   `json:"range,omitempty"`
	Format       string `json:"format,omitempty"`
}

type transform struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

type fields struct {
	Defaults  defaults `json:"defaults"`
	Overrides []any    `json:"overrides"`
}

type defaults struct {
	Unit       string         `json:"unit"`
	Min        *float64       `json:"min,omitempty"`
	NoValue    string         `json:"noValue,omitempty"`
	Thresholds thresholds     `json:"thresholds"`
	Custom     map[string]any `json:"custom,omitempty"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"` // nil: from the lowest on
}

const (
	runbook = "https://github.com/kafka-redrive/redrive/blob/main/docs/runbook.md"
	width   = 24
)

var source = &datasource{Type: "prometheus", UID: "${datasource}"}

// The units of Grafana that are used.
const (
	count   = "short"
	seconds = "s"
	perS    = "cps"
	perMin  = "cpm"
	share   = "percentunit"
	memory  = "bytes"
	onOff   = "bool_yes_no"
)

// builder places panels, one row after the other.
type builder struct {
	panels  []*Panel
	x, y, h int
}

func (b *builder) place(p *Panel, w, h int) {
	if b.x+w > width {
		b.newLine()
	}
	p.ID = len(b.panels) + 1
	p.GridPos = gridPos{H: h, W: w, X: b.x, Y: b.y}
	b.x += w
	b.h = max(b.h, h)
	b.panels = append(b.panels, p)
}

func (b *builder) newLine() {
	b.y += b.h
	b.x, b.h = 0, 0
}

func (b *builder) row(title string) {
	if b.x > 0 {
		b.newLine()
	}
	b.place(&Panel{Type: "row", Title: title}, width, 1)
	b.newLine()
}

// query is an expression and how its series are called.
type query struct{ expr, legend string }

// panel is what the panels of all kinds have.
type panel struct {
	title, about, unit string
	alert              string // of which the runbook tells
	warn, bad          float64
	lowIsBad           bool // below bad it is bad, below warn it is not good
	noValue            string
	queries            []query
}

func (p panel) build(kind string) *Panel {
	out := &Panel{
		Type: kind, Title: p.title, Description: p.about, Datasource: source,
		FieldConfig: &fields{Defaults: defaults{Unit: p.unit, NoValue: p.noValue, Thresholds: p.thresholds()}, Overrides: []any{}},
	}
	if p.alert != "" {
		out.Links = []Link{{Title: "Runbook", URL: runbook + "#" + p.alert, TargetBlank: true}}
	}
	for i, q := range p.queries {
		out.Targets = append(out.Targets, Target{RefID: string(rune('A' + i)), Expr: q.expr, LegendFormat: q.legend})
	}
	return out
}

func (p panel) thresholds() thresholds {
	at := func(color string, v float64) step { return step{color, &v} }
	t := thresholds{Mode: "absolute"}
	switch {
	case p.warn == 0 && p.bad == 0:
		t.Steps = []step{{"green", nil}}
	case p.lowIsBad:
		t.Steps = []step{{"red", nil}, at("orange", p.bad), at("green", p.warn)}
	default:
		t.Steps = []step{{"green", nil}, at("orange", p.warn), at("red", p.bad)}
	}
	return t
}

// stat is one number, a sixth of the width.
func (b *builder) stat(p panel) {
	out := p.build("stat")
	out.Options = map[string]any{
		"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "textMode": "auto",
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	b.place(out, 4, 4)
}

// graph is a course over time, a third of the width.
func (b *builder) graph(p panel) {
	out := p.build("timeseries")
	zero := 0.0
	out.FieldConfig.Defaults.Min = &zero
	out.FieldConfig.Defaults.Custom = map[string]any{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
	if p.warn != 0 || p.bad != 0 {
		out.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	}
	out.Options = map[string]any{
		"legend":  map[string]any{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	for i := range out.Targets {
		out.Targets[i].Range = true
	}
	b.place(out, 8, 8)
}

// table is what is there now.
func (b *builder) table(p panel, w int) {
	out := p.build("table")
	for i := range out.Targets {
		out.Targets[i].Instant, out.Targets[i].Format = true, "table"
	}
	out.Options = map[string]any{"showHeader": true, "cellHeight": "sm"}
	out.Transforms = []transform{{ID: "organize", Options: map[string]any{"excludeByName": map[string]bool{"Time": true}}}}
	b.place(out, w, 8)
}

// board makes a dashboard of what was placed.
func (b *builder) board(uid, title, about string, variables ...Variable) *Dashboard {
	common := []Variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		{
			Name: "namespace", Label: "Namespace", Type: "query", Query: "label_values(redrive_build_info, namespace)", Datasource: source, Refresh: 2, Sort: 1,
			// Outside of Kubernetes there is no such label, which .* takes as well.
			IncludeAll: true, AllValue: ".*", Current: &current{"All", "$__all"},
		},
	}
	return &Dashboard{
		UID: uid, Title: title, Description: about, Tags: []string{"redrive", "kafka"}, SchemaVersion: 39, Editable: true, GraphTooltip: 1,
		Refresh: "30s", Time: timeRange{"now-6h", "now"},
		Links: []Link{
			{Title: "Runbook", Type: "link", URL: runbook, TargetBlank: true},
			{Title: "Redrive", Type: "dashboards", Tags: []string{"redrive"}, KeepTime: true, IncludeVars: true},
		},
		Templating: templating{append(common, variables...)}, Panels: b.panels,
	}
}

// JSON is the dashboard as it stands in the chart.
func (d *Dashboard) JSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.UID, err)
	}
	return out.Bytes(), nil
}
