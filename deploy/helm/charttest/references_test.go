package charttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// What a pod takes from elsewhere is rendered, with the key that is taken, or its name stands in the values: then it is the
// user's own.
func TestWhatPodsReferToExists(t *testing.T) {
	forEachCI(t, func(t *testing.T, values map[string]any, r *Rendered) {
		for _, p := range r.Pods() {
			for _, ref := range references(p.Spec) {
				if problem := ref.missing(r, values); problem != "" {
					t.Errorf("%s: %s", p.Name(), problem)
				}
			}
			for _, problem := range mountFaults(p.Spec) {
				t.Errorf("%s: %s", p.Name(), problem)
			}
		}
	})
}

// reference is one object that a pod needs, and the key of it, if it needs a certain one.
type reference struct {
	kind, name, key string
	optional        bool
}

func (ref reference) String() string {
	if ref.key == "" {
		return ref.kind + "/" + ref.name
	}
	return ref.kind + "/" + ref.name + ", key " + ref.key
}

// missing says what is wrong with the reference; "" if nothing is.
func (ref reference) missing(r *Rendered, values map[string]any) string {
	var keys []string
	found := false
	for _, o := range r.Objects {
		if KindOf(o.Typed) != ref.kind || NameOf(o.Typed) != ref.name {
			continue
		}
		found = true
		switch typed := o.Typed.(type) {
		case *core.ConfigMap:
			for key := range typed.Data {
				keys = append(keys, key)
			}
		case *core.Secret:
			for key := range typed.StringData {
				keys = append(keys, key)
			}
			for key := range typed.Data {
				keys = append(keys, key)
			}
		}
	}
	switch {
	case found && (ref.key == "" || slices.Contains(keys, ref.key)):
		return ""
	case found:
		return fmt.Sprintf("%s is rendered without it", ref)
	case ref.optional || says(values, ref.name):
		return ""
	case ref.kind == "ServiceAccount" && ref.name == "default":
		return "" // Every namespace has it.
	default:
		return fmt.Sprintf("%s is neither rendered nor named in the values", ref)
	}
}

// says tells whether a text stands in the values.
func says(value any, text string) bool {
	switch v := value.(type) {
	case string:
		return v == text
	case map[string]any:
		for _, below := range v {
			if says(below, text) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(below any) bool { return says(below, text) })
	}
	return false
}

// references are all objects that a pod refers to.
func references(spec core.PodSpec) []reference {
	refs := []reference{{kind: "ServiceAccount", name: spec.ServiceAccountName}}
	if spec.ServiceAccountName == "" {
		refs[0].name = "default"
	}
	for _, s := range spec.ImagePullSecrets {
		refs = append(refs, reference{kind: "Secret", name: s.Name})
	}
	for _, v := range spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			refs = append(refs, itemsOf("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)...)
		case v.Secret != nil:
			refs = append(refs, itemsOf("Secret", v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)...)
		case v.PersistentVolumeClaim != nil:
			refs = append(refs, reference{kind: "PersistentVolumeClaim", name: v.PersistentVolumeClaim.ClaimName})
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					refs = append(refs, itemsOf("ConfigMap", s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)...)
				}
				if s.Secret != nil {
					refs = append(refs, itemsOf("Secret", s.Secret.Name, s.Secret.Items, s.Secret.Optional)...)
				}
			}
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, e := range c.EnvFrom {
			if s := e.ConfigMapRef; s != nil {
				refs = append(refs, reference{kind: "ConfigMap", name: s.Name, optional: isTrue(s.Optional)})
			}
			if s := e.SecretRef; s != nil {
				refs = append(refs, reference{kind: "Secret", name: s.Name, optional: isTrue(s.Optional)})
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.ConfigMapKeyRef; s != nil {
				refs = append(refs, reference{kind: "ConfigMap", name: s.Name, key: s.Key, optional: isTrue(s.Optional)})
			}
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				refs = append(refs, reference{kind: "Secret", name: s.Name, key: s.Key, optional: isTrue(s.Optional)})
			}
		}
	}
	return refs
}

func itemsOf(kind, name string, items []core.KeyToPath, optional *bool) []reference {
	refs := []reference{{kind: kind, name: name, optional: isTrue(optional)}}
	for _, item := range items {
		refs = append(refs, reference{kind: kind, name: name, key: item.Key, optional: isTrue(optional)})
	}
	return refs
}

func isTrue(b *bool) bool { return b != nil && *b }

// mountFaults are volumes that are mounted and not there, or there and not mounted, places with two mounts, mounts of
// single files, which would never see a change, and probes of ports that no container has.
func mountFaults(spec core.PodSpec) []string {
	var faults []string
	mounted := map[string]bool{}
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		if volumes[v.Name] {
			faults = append(faults, "two volumes are named "+v.Name)
		}
		volumes[v.Name] = true
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		places := map[string]bool{}
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			if !volumes[m.Name] {
				faults = append(faults, fmt.Sprintf("container %s mounts the volume %s, which is not there", c.Name, m.Name))
			}
			if places[m.MountPath] {
				faults = append(faults, fmt.Sprintf("container %s has two mounts at %s", c.Name, m.MountPath))
			}
			places[m.MountPath] = true
			if m.SubPath != "" || m.SubPathExpr != "" {
				faults = append(faults, fmt.Sprintf("container %s mounts a subPath at %s: it never changes", c.Name, m.MountPath))
			}
		}
		names := map[string]bool{}
		for _, e := range c.Env {
			if names[e.Name] {
				faults = append(faults, fmt.Sprintf("container %s has the variable %s twice", c.Name, e.Name))
			}
			names[e.Name] = true
		}
		for kind, p := range map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if p != nil && p.HTTPGet != nil && !hasPort(c, p.HTTPGet.Port) {
				faults = append(faults, fmt.Sprintf("the %s probe of container %s asks port %s, which it does not have", kind, c.Name, p.HTTPGet.Port.String()))
			}
		}
	}
	for name := range volumes {
		if !mounted[name] {
			faults = append(faults, "nothing mounts the volume "+name)
		}
	}
	return faults
}

func hasPort(c core.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool {
		return port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal
	})
}

// Every selector takes the pods that it is for and no others, and what it says of their ports is so.
func TestSelectorsTakeTheirPods(t *testing.T) {
	forEachCI(t, func(t *testing.T, values map[string]any, r *Rendered) {
		pods := r.Pods()
		for _, p := range pods {
			if p.Selector == nil {
				continue
			}
			if taken := take(t, pods, p.Selector); len(taken) != 1 || taken[0].Name() != p.Name() {
				t.Errorf("%s: its selector takes %v", p.Name(), namesOf(taken))
			}
			for _, s := range p.Spec.TopologySpreadConstraints {
				if taken := take(t, pods, s.LabelSelector); len(taken) != 1 || taken[0].Name() != p.Name() {
					t.Errorf("%s: the spread over %s counts %v", p.Name(), s.TopologyKey, namesOf(taken))
				}
			}
		}
		for _, o := range r.Objects {
			for _, problem := range selectorFaults(t, o.Typed, r, pods, values) {
				t.Errorf("%s/%s: %s", KindOf(o.Typed), NameOf(o.Typed), problem)
			}
		}
	})
}

// selectorFaults are what is wrong with what an object says of others.
func selectorFaults(t *testing.T, o runtime.Object, r *Rendered, pods []Pod, values map[string]any) []string {
	t.Helper()
	switch typed := o.(type) {
	case *core.Service:
		return serviceFaults(t, typed, pods)
	case *policy.PodDisruptionBudget:
		taken := take(t, pods, typed.Spec.Selector)
		if len(taken) != 1 || taken[0].Selector == nil {
			return []string{fmt.Sprintf("it takes %v", namesOf(taken))}
		}
	case *networking.NetworkPolicy:
		return policyFaults(t, typed, pods)
	case *monitoring.ServiceMonitor:
		return monitorFaults(t, typed, r)
	case *monitoring.PodMonitor:
		taken := take(t, pods, &typed.Spec.Selector)
		var faults []string
		if len(taken) == 0 {
			faults = append(faults, "it takes no pod")
		}
		for _, e := range typed.Spec.PodMetricsEndpoints {
			for _, p := range taken {
				if _, ok := p.Port(*e.Port); !ok {
					faults = append(faults, fmt.Sprintf("%s has no port %s", p.Name(), *e.Port))
				}
			}
		}
		return faults
	case *autoscaling.HorizontalPodAutoscaler:
		ref := typed.Spec.ScaleTargetRef
		return targetFaults(ref.Kind, ref.Name, pods)
	case *ScaledObject:
		ref := typed.Spec.ScaleTargetRef
		if ref.Kind == "" {
			ref.Kind = "Deployment"
		}
		return targetFaults(ref.Kind, ref.Name, pods)
	case *networking.Ingress:
		return ingressFaults(typed, r)
	case *gateway.HTTPRoute:
		return routeFaults(typed, r)
	case *apps.StatefulSet:
		if _, err := Find[*core.Service](r, typed.Spec.ServiceName); err != nil {
			return []string{err.Error()}
		}
	case *core.Pod:
		for _, ref := range references(typed.Spec) {
			if problem := ref.missing(r, values); problem != "" {
				return []string{problem}
			}
		}
	}
	return nil
}

func serviceFaults(t *testing.T, s *core.Service, pods []Pod) []string {
	t.Helper()
	taken := take(t, pods, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	if len(taken) != 1 {
		return []string{fmt.Sprintf("it takes %v", namesOf(taken))}
	}
	var faults []string
	for _, port := range s.Spec.Ports {
		if !slices.ContainsFunc(taken[0].Spec.Containers, func(c core.Container) bool { return hasPort(c, port.TargetPort) }) {
			faults = append(faults, fmt.Sprintf("%s has no port %s", taken[0].Name(), port.TargetPort.String()))
		}
	}
	return faults
}

func policyFaults(t *testing.T, n *networking.NetworkPolicy, pods []Pod) []string {
	t.Helper()
	taken := take(t, pods, &n.Spec.PodSelector)
	if len(taken) == 0 {
		return []string{"it takes no pod"}
	}
	var faults []string
	for _, rule := range n.Spec.Ingress {
		for _, port := range rule.Ports {
			for _, p := range taken {
				if port.Port != nil && !slices.ContainsFunc(p.Spec.Containers, func(c core.Container) bool { return hasPort(c, *port.Port) }) {
					faults = append(faults, fmt.Sprintf("%s has no port %s", p.Name(), port.Port.String()))
				}
			}
		}
	}
	for _, rule := range n.Spec.Egress {
		if len(rule.Ports) == 0 && len(rule.To) == 0 {
			faults = append(faults, "everything may be reached")
		}
	}
	return faults
}

func monitorFaults(t *testing.T, m *monitoring.ServiceMonitor, r *Rendered) []string {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	found := 0
	for _, s := range All[*core.Service](r) {
		if !selector.Matches(labels.Set(s.Labels)) {
			continue
		}
		found++
		for _, e := range m.Spec.Endpoints {
			if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == e.Port }) {
				faults = append(faults, fmt.Sprintf("the Service %s has no port %s", s.Name, e.Port))
			}
		}
		if names := m.Spec.NamespaceSelector.MatchNames; len(names) > 0 && !slices.Contains(names, s.Namespace) {
			faults = append(faults, fmt.Sprintf("the Service %s is in %s, and it looks into %v", s.Name, s.Namespace, names))
		}
		if len(m.Spec.NamespaceSelector.MatchNames) == 0 && !m.Spec.NamespaceSelector.Any && m.Namespace != s.Namespace {
			faults = append(faults, fmt.Sprintf("the Service %s is in another namespace", s.Name))
		}
	}
	if found == 0 {
		faults = append(faults, "it takes no Service")
	}
	return faults
}

// targetFaults are what is wrong with what something scales: what is scaled must be there, and must not say how many it is.
func targetFaults(kind, name string, pods []Pod) []string {
	for _, p := range pods {
		if KindOf(p.Of) != kind || NameOf(p.Of) != name {
			continue
		}
		if p.Replicas != nil {
			return []string{p.Name() + " says its replicas: each upgrade would set them back"}
		}
		return nil
	}
	return []string{fmt.Sprintf("there is no %s/%s", kind, name)}
}

func ingressFaults(i *networking.Ingress, r *Rendered) []string {
	var faults []string
	paths := 0
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			paths++
			s := p.Backend.Service
			if s == nil {
				faults = append(faults, "a path goes to no Service")
				continue
			}
			if !serves(r, s.Name, func(port core.ServicePort) bool {
				return s.Port.Name != "" && port.Name == s.Port.Name || s.Port.Number != 0 && port.Port == s.Port.Number
			}) {
				faults = append(faults, fmt.Sprintf("no Service %s has the port %s%d", s.Name, s.Port.Name, s.Port.Number))
			}
		}
	}
	if paths == 0 {
		faults = append(faults, "it has no path")
	}
	return faults
}

func routeFaults(h *gateway.HTTPRoute, r *Rendered) []string {
	var faults []string
	backends := 0
	for _, rule := range h.Spec.Rules {
		for _, b := range rule.BackendRefs {
			backends++
			if b.Port == nil || !serves(r, string(b.Name), func(port core.ServicePort) bool { return port.Port == *b.Port }) {
				faults = append(faults, fmt.Sprintf("no Service %s has the port of the route", b.Name))
			}
		}
	}
	if backends == 0 || len(h.Spec.ParentRefs) == 0 {
		faults = append(faults, "it leads from nowhere, or to nowhere")
	}
	return faults
}

func serves(r *Rendered, name string, port func(core.ServicePort) bool) bool {
	s, err := Find[*core.Service](r, name)
	return err == nil && slices.ContainsFunc(s.Spec.Ports, port)
}

// take are the pods that a selector takes; a nil one takes none.
func take(t *testing.T, pods []Pod, selector *metav1.LabelSelector) []Pod {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	var taken []Pod
	for _, p := range pods {
		if s.Matches(labels.Set(p.Meta.Labels)) {
			taken = append(taken, p)
		}
	}
	return taken
}

func namesOf(pods []Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name())
	}
	return "[" + strings.Join(names, " ") + "]"
}
