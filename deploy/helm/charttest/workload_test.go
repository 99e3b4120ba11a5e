package charttest

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
)

// podsOf are the pods that a set of values gives, each as one text, by what starts them. A Job goes by its name without the hash.
func podsOf(t *testing.T, values string) map[string]string {
	t.Helper()
	r, err := load(t).Render(withValues(t, values), clusterAPIs...)
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{}
	for _, o := range r.Objects {
		switch typed := o.Typed.(type) {
		case *apps.Deployment:
			pods[typed.Name] = typed.Spec.Template.String()
		case *batch.Job:
			pods[typed.Name[:strings.LastIndexByte(typed.Name, '-')]] = typed.Name
		}
	}
	return pods
}

// A change restarts the pods that do not take it over by themselves, and no other. A Job has another name then, as it can not
// be changed.
func TestAChangeRestartsWhatMustRestart(t *testing.T) {
	t.Parallel()
	const base = `
ledger: {type: postgres, existingSecret: {name: ledger}, migrations: {mode: job}}
topicManagement: {mode: job}
`
	const forwarder, replayer, topics, migrations = "redrive-forwarder", "redrive-replayer", "redrive-topics", "redrive-migrate"
	before := podsOf(t, base)
	for _, c := range []struct {
		name, values string
		restarted    []string
	}{
		{"nothing", base, nil},
		{"another topic", base + `topics: [{origin: orders}, {origin: payments}]`, []string{replayer, topics, migrations}},
		{"the log level", base + `logging: {level: debug}`, nil},
		{"the brokers", base + `kafka: {brokers: [other:9092]}`, []string{forwarder, replayer, topics, migrations}},
		{"a setting of the replayer", base + `config: {replayer: {bulkLimit: 5}}`, []string{replayer, topics, migrations}},
		{"the replicas", base + `forwarder: {replicas: 5}`, nil},
	} {
		after := podsOf(t, c.values)
		for _, name := range []string{forwarder, replayer, topics, migrations} {
			if before[name] == "" || after[name] == "" {
				t.Fatalf("%s: %s is not rendered", c.name, name)
			}
			restarts, want := before[name] != after[name], false
			for _, r := range c.restarted {
				want = want || r == name
			}
			if restarts != want {
				t.Errorf("a change of %s: %s restarts is %v, want %v", c.name, name, restarts, want)
			}
		}
	}
	if inplace, restart := podsOf(t, `topics: [{origin: a}]`), podsOf(t, `{topics: [{origin: a}], forwarder: {reload: restart}}`); inplace[forwarder] == restart[forwarder] {
		t.Error("forwarder.reload changes nothing")
	}
}

// A budget is there for more than one replica only: with one it would keep nodes from being drained.
func TestABudgetNeedsTwoReplicas(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]int{
		`forwarder: {replicas: 1}`: 0,
		`forwarder: {replicas: 2}`: 1,
		`forwarder: {replicas: 1, autoscaling: {type: hpa, minReplicas: 2}}`:                              1,
		`forwarder: {replicas: 3, autoscaling: {type: hpa, minReplicas: 1}}`:                              0,
		`{replayer: {replicas: 2}, ledger: {type: postgres, url: "postgres://redrive@postgres:5432/db"}}`: 2,
		`forwarder: {pdb: {enabled: false}}`:                                                              0,
	} {
		r, err := load(t).Render(withValues(t, values), clusterAPIs...)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(All[*policy.PodDisruptionBudget](r)); got != want {
			t.Errorf("%s: %d budgets, want %d", values, got, want)
		}
	}
}

// Scaling goes by records that are overdue, never by lag or by the processor, never to zero, and leaves the number of pods to
// whoever scales.
func TestScalingGoesByOverdueRecords(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{
		"keda": `forwarder: {autoscaling: {type: keda, keda: {serverAddress: "http://prometheus:9090"}}}`,
		"hpa":  `forwarder: {autoscaling: {type: hpa}}`,
	} {
		r, err := load(t).Render(withValues(t, values), clusterAPIs...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Find[*apps.Deployment](r, "redrive-forwarder")
		if err != nil {
			t.Fatal(err)
		}
		if d.Spec.Replicas != nil {
			t.Errorf("%s: the Deployment says %d replicas, and whoever scales says another number", name, *d.Spec.Replicas)
		}
		scaled, hpas := All[*ScaledObject](r), All[*autoscaling.HorizontalPodAutoscaler](r)
		if len(scaled)+len(hpas) != 1 {
			t.Fatalf("%s: %d and %d scale", name, len(scaled), len(hpas))
		}
		for _, s := range scaled {
			if s.Spec.Fallback == nil || *s.Spec.MinReplicaCount < 1 || len(s.Spec.Triggers) != 1 {
				t.Fatalf("%s: no fallback, no replica, or %d triggers", name, len(s.Spec.Triggers))
			}
			if trigger := s.Spec.Triggers[0]; trigger.Type != "prometheus" || !strings.Contains(trigger.Metadata["query"], `redrive_overdue_records{namespace="`+Namespace+`"`) {
				t.Errorf("%s: scales by %v", name, trigger)
			}
		}
		for _, h := range hpas {
			if *h.Spec.MinReplicas < 1 || len(h.Spec.Metrics) != 1 || h.Spec.Metrics[0].External == nil || h.Spec.Metrics[0].External.Metric.Name != "redrive_overdue_records" {
				t.Errorf("%s: scales by %v", name, h.Spec.Metrics)
			}
			if *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds < 300 {
				t.Errorf("%s: each change moves partitions, and it may come after %d seconds", name, *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds)
			}
		}
	}
}

// A static member is named as its pod, and only a StatefulSet has pods with names that come back.
func TestStaticMembersAreNamedAsTheirPods(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		r, err := load(t).Render(withValues(t, `forwarder: {kind: `+kind+`}`), clusterAPIs...)
		if err != nil {
			t.Fatal(err)
		}
		static := 0
		for _, p := range r.Pods() {
			for _, c := range p.Containers() {
				for _, e := range c.Env {
					if strings.HasSuffix(e.Name, "_INSTANCEID") && e.ValueFrom.FieldRef.FieldPath == "metadata.name" {
						static++
					}
				}
			}
		}
		if want := map[string]int{"Deployment": 0, "StatefulSet": 1}[kind]; static != want {
			t.Errorf("%s: %d containers are static members, want %d", kind, static, want)
		}
	}
}

// What records or history would go with stays when the release is removed.
func TestTheLedgerOutlivesTheRelease(t *testing.T) {
	t.Parallel()
	r, err := load(t).Render(withValues(t, ""), clusterAPIs...)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := Find[*core.PersistentVolumeClaim](r, "redrive-ledger")
	if err != nil {
		t.Fatal(err)
	}
	if claim.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("the volume of the ledger goes with the release")
	}
}
