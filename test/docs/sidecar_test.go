package docs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// manifest is what the example of a sidecar says, as far as it is run here. The tests of the chart decode all of it.
type manifest struct {
	Kind string            `yaml:"kind"`
	Data map[string]string `yaml:"data"`
	Spec struct {
		Template struct {
			Spec struct {
				Containers []container `yaml:"containers"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

// container is one of its pod.
type container struct {
	Name  string   `yaml:"name"`
	Args  []string `yaml:"args"`
	Ports []struct {
		ContainerPort int `yaml:"containerPort"`
	} `yaml:"ports"`
	LivenessProbe struct {
		HTTPGet struct {
			Path string `yaml:"path"`
		} `yaml:"httpGet"`
	} `yaml:"livenessProbe"`
	VolumeMounts []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// TestTheSidecarOfTheExamplesRuns starts the forwarder's container of the example as a process, with the folder of its ConfigMap, and has it
// bring a record to the dead letters.
func TestTheSidecarOfTheExamplesRuns(t *testing.T) {
	k := testkit.RealKafka(t, 1)
	client := k.Client(t)
	client.CreateTopic("orders", 1, nil)
	t.Cleanup(func() { clean(t, k) })
	text, err := os.ReadFile(filepath.Join(root, "examples/kubernetes/sidecar.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config, deployment manifest
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(document), &m); err != nil {
			t.Fatal(err)
		}
		switch m.Kind {
		case "ConfigMap":
			config = m
		case "Deployment":
			deployment = m
		}
	}
	containers := deployment.Spec.Template.Spec.Containers
	at := slices.IndexFunc(containers, func(c container) bool { return c.Name == "forwarder" })
	if at < 0 || len(containers[at].Ports) != 1 || len(containers[at].VolumeMounts) != 1 {
		t.Fatalf("no container forwarder with a port and a folder: %+v", containers)
	}
	sidecar := containers[at]
	dir := t.TempDir()
	port := strconv.Itoa(testkit.FreePort(t))
	replace := strings.NewReplacer("kafka:9092", k.Brokers()[0], ":"+strconv.Itoa(sidecar.Ports[0].ContainerPort), ":"+port, sidecar.VolumeMounts[0].MountPath, dir)
	for name, content := range config.Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(replace.Replace(content)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(arguments ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(binaries, "forwarder"), arguments...)
		cmd.Env = testkit.Environment()
		return cmd
	}
	if out, err := command("topics", "apply", "-c", filepath.Join(dir, "topics.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("topics apply: %v\n%s", err, out)
	}

	arguments := slices.Clone(sidecar.Args)
	for i := range arguments {
		arguments[i] = replace.Replace(arguments[i])
	}
	run := command(arguments...)
	var log testkit.Buffer
	run.Stdout, run.Stderr = &log, &log
	ended := make(chan error, 1)
	if err := testkit.StartChild(run, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if err := run.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v\n%s", err, log.String())
		}
	}
	t.Cleanup(stop)
	client.Produce(&kgo.Record{Topic: "orders.retry", Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "redrive-action", Value: []byte("dead")}}})
	client.WaitForRecords(limit, "orders.dlt", 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+sidecar.LivenessProbe.HTTPGet.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Error(fmt.Errorf("the liveness probe: %s, %w", response.Status, err))
	}
	stop()
}
