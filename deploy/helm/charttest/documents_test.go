package charttest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/kafka-redrive/redrive/internal/config"
)

// The values that the first page for a new user writes make the pods that it speaks of, and the Job of the topics.
func TestTheValuesOfTheDocumentsRender(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)cat > values\.yaml <<'END'\n(.*?)\nEND\n`).FindAllSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatal("docs/kubernetes.md writes no values.yaml")
	}
	for _, block := range found {
		values, err := Values(block[1])
		if err != nil {
			t.Fatal(err)
		}
		r, err := load(t).Render(values)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range r.Pods() {
			names = append(names, p.Name())
		}
		for _, want := range []string{"Deployment/redrive-forwarder", "Deployment/redrive-replayer"} {
			if !slices.Contains(names, want) {
				t.Errorf("no %s, as the page says, but %v", want, names)
			}
		}
		if jobs := All[*batch.Job](r); len(jobs) != 1 || !strings.Contains(strings.Join(jobs[0].Spec.Template.Spec.Containers[0].Args, " "), "topics apply") {
			t.Errorf("no job that makes the topics: %v", jobs)
		}
	}
}

// The values that the page names are those of the chart.
func TestTheValuesThatTheDocumentsNameExist(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Values by need\n")
	if !ok {
		t.Fatal("docs/kubernetes.md has no section Values by need")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	defaults, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values, err := Values(defaults)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z]\\w*(?:\\.\\w+)+)(?:: [\\w-]+)?`").FindAllStringSubmatch(section, -1)
	if len(names) < 20 {
		t.Fatalf("only %d values are named", len(names))
	}
	for _, name := range names {
		var at any = values
		for part := range strings.SplitSeq(name[1], ".") {
			level, _ := at.(map[string]any)
			if at, ok = level[part]; !ok {
				t.Errorf("the chart has no value %s", name[1])
				break
			}
		}
	}
}

// The sidecar is a Deployment that a cluster would take, and its container is that of the chart.
func TestTheSidecarOfTheExamplesIsThatOfTheChart(t *testing.T) {
	text, err := os.ReadFile("../../../examples/kubernetes/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := &Rendered{}
	if err := example.add("sidecar.yaml", string(text)); err != nil {
		t.Fatal(err)
	}
	pods := example.Pods()
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	sidecar, ok := pods[0].Container("forwarder")
	if !ok || len(pods[0].Spec.Containers) != 2 {
		t.Fatalf("not a forwarder beside another container: %v", namesOf(pods))
	}
	for _, fault := range append(podFaults(pods[0].Spec), containerFaults(sidecar)...) {
		t.Error(fault)
	}
	for _, fault := range mountFaults(pods[0].Spec) {
		t.Error(fault)
	}

	c := load(t)
	values, err := Values([]byte("kafka: {brokers: [kafka:9092]}\ntopics: [{origin: orders}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Render(values)
	if err != nil {
		t.Fatal(err)
	}
	var chart core.Container
	for _, p := range r.Pods() {
		if p.Name() == "Deployment/redrive-forwarder" {
			chart, _ = p.Container("forwarder")
		}
	}
	if diff := cmp.Diff(chart.Args, sidecar.Args); diff != "" {
		t.Errorf("arguments (-chart +sidecar):\n%s", diff)
	}
	if chart.Image != sidecar.Image {
		t.Errorf("image %s, that of the chart is %s", sidecar.Image, chart.Image)
	}
	if diff := cmp.Diff(chart.LivenessProbe, sidecar.LivenessProbe); diff != "" {
		t.Errorf("liveness probe (-chart +sidecar):\n%s", diff)
	}

	file := t.TempDir() + "/topics.yaml"
	if err := os.WriteFile(file, []byte(All[*core.ConfigMap](example)[0].Data["topics.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	if grace := *pods[0].Spec.TerminationGracePeriodSeconds; time.Duration(grace)*time.Second <= time.Duration(cfg.Forwarder.ShutdownTimeout) {
		t.Errorf("a grace period of %d s for a drain of %v", grace, cfg.Forwarder.ShutdownTimeout)
	}
}
