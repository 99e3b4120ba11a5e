package charttest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/kafka-redrive/redrive/internal/config"
)

// theirConfig stands for a topics.yaml that is not of the chart.
const theirConfig = "topics:\n  - origin: orders\n"

// theirSecret stands for the content of a Secret that is not of the chart. It is what a value with any rule of its own takes.
const theirSecret = "postgres://redrive@db:5432/redrive"

// The program takes every configuration that the chart gives it: the file with the variables over it. The files that it
// names are mounted, it is stopped within the grace period of its pod, and it listens on the ports that the pod names.
func TestProgramsTakeTheirConfiguration(t *testing.T) {
	loaded := 0
	forEachCI(t, func(t *testing.T, _ map[string]any, r *Rendered) {
		for _, p := range r.Pods() {
			for _, c := range p.Containers() {
				file, ok := configFlag(c.Args)
				if !ok {
					continue
				}
				loaded++
				where := p.Name() + ", container " + c.Name
				cfg, err := config.Load(config.Source{Path: configFile(t, r, p, c, file), Environ: environment(r, c)})
				if err != nil {
					t.Errorf("%s: %v", where, err)
					continue
				}
				checkFiles(t, where, p, c, reflect.ValueOf(*cfg), "")
				checkTimes(t, where, p, c, cfg)
			}
		}
	})
	t.Logf("%d configurations loaded", loaded)
}

// configFlag is the file that the arguments name.
func configFlag(args []string) (string, bool) {
	for i, a := range args {
		if file, ok := strings.CutPrefix(a, "--config="); ok {
			return file, true
		}
		if (a == "-c" || a == "--config") && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// configFile writes the file of the container to where the test can read it.
func configFile(t *testing.T, r *Rendered, p Pod, c core.Container, file string) string {
	t.Helper()
	source, ok := mounted(p.Spec, c, file)
	if !ok || source.kind != "ConfigMap" {
		t.Fatalf("%s: nothing is mounted at %s", p.Name(), file)
	}
	text := theirConfig
	if m, err := Find[*core.ConfigMap](r, source.name); err == nil {
		text = m.Data[source.key]
	}
	path := filepath.Join(t.TempDir(), "topics.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// environment are the variables of a container. Those of Secrets that are not of the chart have a stand-in.
func environment(r *Rendered, c core.Container) []string {
	var environ []string
	for _, e := range c.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil {
			switch {
			case from.SecretKeyRef != nil:
				value = theirSecret
				if s, err := Find[*core.Secret](r, from.SecretKeyRef.Name); err == nil {
					value = s.StringData[from.SecretKeyRef.Key]
				}
			case from.FieldRef != nil:
				value = "pod-0"
			}
		}
		environ = append(environ, e.Name+"="+value)
	}
	return environ
}

// mounted says what a file of a container is.
func mounted(spec core.PodSpec, c core.Container, file string) (reference, bool) {
	for _, m := range c.VolumeMounts {
		below, ok := strings.CutPrefix(file, m.MountPath+"/")
		if !ok {
			continue
		}
		for _, v := range spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			switch {
			case v.ConfigMap != nil:
				return itemAt("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items, below)
			case v.Secret != nil:
				return itemAt("Secret", v.Secret.SecretName, v.Secret.Items, below)
			case v.Projected != nil:
				for _, s := range v.Projected.Sources {
					if s.ServiceAccountToken != nil && s.ServiceAccountToken.Path == below {
						return reference{kind: "ServiceAccountToken", key: below}, true
					}
				}
			case v.EmptyDir != nil:
				return reference{kind: "EmptyDir"}, !m.ReadOnly
			case v.PersistentVolumeClaim != nil:
				return reference{kind: "PersistentVolumeClaim", name: v.PersistentVolumeClaim.ClaimName}, !m.ReadOnly
			}
		}
	}
	return reference{}, false
}

func itemAt(kind, name string, items []core.KeyToPath, below string) (reference, bool) {
	if len(items) == 0 {
		return reference{kind: kind, name: name, key: below}, true
	}
	for _, item := range items {
		if item.Path == below {
			return reference{kind: kind, name: name, key: item.Key}, true
		}
	}
	return reference{}, false
}

// checkFiles looks at every ...Filepath of a configuration that a process of this kind opens.
func checkFiles(t *testing.T, where string, p Pod, c core.Container, v reflect.Value, path string) {
	t.Helper()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		below := strings.TrimPrefix(path+"."+name, ".")
		field := v.Field(i)
		switch {
		case field.Kind() == reflect.Struct:
			checkFiles(t, where, p, c, field, below)
		case strings.HasSuffix(name, "Filepath") && field.String() != "" && opens(c.Args[0], below):
			if source, ok := mounted(p.Spec, c, field.String()); !ok || source.kind == "EmptyDir" {
				t.Errorf("%s: %s is %s, where nothing is mounted", where, below, field.String())
			}
		}
	}
}

// opens tells whether a command opens the file of a setting. They share one configuration, and each takes its part of it.
func opens(command, setting string) bool {
	section, _, _ := strings.Cut(setting, ".")
	switch command {
	case "serve":
		return section != "Forwarder"
	case "migrate":
		return section == "Ledger"
	default: // Those of the forwarder.
		return section == "Kafka" || section == "Forwarder"
	}
}

// checkTimes holds the times and the ports of a program against its pod.
func checkTimes(t *testing.T, where string, p Pod, c core.Container, cfg *config.Config) {
	t.Helper()
	var stop config.Duration
	var address string
	switch c.Args[0] {
	case "run":
		stop, address = cfg.Forwarder.ShutdownTimeout, cfg.Forwarder.Admin.Address
	case "serve":
		stop, address = cfg.Replayer.ShutdownTimeout, cfg.Replayer.Admin.Address
		if port, ok := p.Port("http"); ok && cfg.Replayer.API.Address != fmt.Sprintf(":%d", port) {
			t.Errorf("%s: the API listens on %s, and the port http is %d", where, cfg.Replayer.API.Address, port)
		} else if !ok && !strings.HasPrefix(cfg.Replayer.API.Address, "127.0.0.1:") {
			t.Errorf("%s: the API listens on %s without tokens", where, cfg.Replayer.API.Address)
		}
	default:
		return
	}
	grace := p.Spec.TerminationGracePeriodSeconds
	if grace == nil || time.Duration(*grace)*time.Second <= time.Duration(stop) {
		t.Errorf("%s: the pod is killed %v seconds after SIGTERM, and the program may take %v", where, grace, stop)
	}
	if port, ok := p.Port("metrics"); !ok || address != fmt.Sprintf(":%d", port) {
		t.Errorf("%s: probes and metrics are at %s, and the port metrics is %d", where, address, port)
	}
	if c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Errorf("%s has no readiness probe, or no liveness probe", where)
	}
}
