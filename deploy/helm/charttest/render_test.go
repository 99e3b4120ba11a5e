package charttest

import (
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kafka-redrive/redrive/internal/testkit/golden"
)

// What the values of ci/ give is as testdata/NAME.golden has it; -update writes them. The text of a dashboard is left out: it is a
// file of the chart, word for word.
func TestRendersAsTheGoldens(t *testing.T) {
	c := load(t)
	total := 0
	forEachCI(t, func(t *testing.T, _ map[string]any, r *Rendered) {
		var b strings.Builder
		for _, o := range r.sorted() {
			fmt.Fprintf(&b, "--- # %s\n%s", o.Template, normal(t, c, o))
		}
		b.WriteString("--- # templates/NOTES.txt\n" + strings.TrimSpace(r.Notes) + "\n")
		total += len(r.Objects)
		golden.Check(t, t.Name()[strings.LastIndexByte(t.Name(), '/')+1:], b.String())
	})
	t.Logf("%d objects decoded strictly", total)
}

// normal is an object with its keys in order, so that a golden shows what is there and not how a template has written it.
func normal(t *testing.T, c *Chart, o Object) string {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(o.Text), &content); err != nil {
		t.Fatal(err)
	}
	if _, ok := o.Typed.(*core.ConfigMap); ok {
		data, _ := content["data"].(map[string]any) // nil: it has none
		for key, value := range data {
			file := "files/dashboards/" + strings.TrimPrefix(key, "redrive-")
			if text, ok := c.File(file); ok && strings.TrimSpace(string(text)) == strings.TrimSpace(fmt.Sprint(value)) {
				data[key] = "(" + file + ")"
			}
		}
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each object has a namespace and the labels by which everything of a release is found; no two are the same.
func TestObjectsAreOfTheRelease(t *testing.T) {
	forEachCI(t, func(t *testing.T, _ map[string]any, r *Rendered) {
		seen := map[string]bool{}
		for _, o := range r.Objects {
			meta := accessor(o.Typed)
			id := KindOf(o.Typed) + "/" + meta.GetNamespace() + "/" + meta.GetName()
			if seen[id] {
				t.Errorf("%s is rendered twice", id)
			}
			seen[id] = true
			if o.Template == "templates/extraobjects.yaml" {
				continue // It is the user's.
			}
			if meta.GetNamespace() == "" {
				t.Errorf("%s (%s) has no namespace", id, o.Template)
			}
			if len(meta.GetName()) > 63 {
				t.Errorf("%s has a name of more than 63 characters", id)
			}
			for _, label := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
				if meta.GetLabels()[label] == "" {
					t.Errorf("%s (%s) has no label %s", id, o.Template, label)
				}
			}
		}
	})
}

// What the user is told at the end names the next command.
func TestNotesNameTheNextCommand(t *testing.T) {
	forEachCI(t, func(t *testing.T, _ map[string]any, r *Rendered) {
		if !strings.Contains(r.Notes, "kubectl ") {
			t.Errorf("the notes name no command:\n%s", r.Notes)
		}
		for line := range strings.Lines(r.Notes) {
			if strings.Contains(line, "<no value>") || strings.Contains(line, "%!") {
				t.Errorf("the notes have a hole: %s", line)
			}
		}
	})
}

// Helm's linter has nothing to say, not even a warning.
func TestLintIsContent(t *testing.T) {
	t.Parallel()
	sets, err := CIValues(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := lint.RunAll(chartDir, values, Namespace)
			for _, m := range result.Messages {
				if m.Severity >= support.WarningSev {
					t.Errorf("%s", m.Error())
				}
			}
		})
	}
}

// The same values give the same text, so that Argo CD and helm diff stay silent.
func TestRendersTheSameTwice(t *testing.T) {
	c := load(t)
	forEachCI(t, func(t *testing.T, values map[string]any, r *Rendered) {
		again, err := c.Render(values, clusterAPIs...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Objects {
			if r.Objects[i].Text != again.Objects[i].Text {
				t.Errorf("%s differs:\n%s\n%s", r.Objects[i].Template, r.Objects[i].Text, again.Objects[i].Text)
			}
		}
	})
}
