package charttest

import (
	"slices"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pod is the pod that an object would start.
type Pod struct {
	Of       runtime.Object        // a workload, or the pod itself
	Selector *metav1.LabelSelector // of the workload; nil: it makes one up, or has none
	Replicas *int32                // nil: not said, as where something scales it
	Meta     metav1.ObjectMeta
	Spec     core.PodSpec
}

// Name is where the pod comes from, as in Deployment/redrive-forwarder.
func (p Pod) Name() string { return KindOf(p.Of) + "/" + NameOf(p.Of) }

// Containers are all that the pod has, those that run first included.
func (p Pod) Containers() []core.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// Container is the one of that name.
func (p Pod) Container(name string) (core.Container, bool) {
	for _, c := range p.Containers() {
		if c.Name == name {
			return c, true
		}
	}
	return core.Container{}, false
}

// Port is the number of a port that a container of the pod names.
func (p Pod) Port(name string) (int32, bool) {
	for _, c := range p.Containers() {
		for _, port := range c.Ports {
			if port.Name == name {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}

// Pods are those that the objects would start, hooks and tests included.
func (r *Rendered) Pods() []Pod {
	var pods []Pod
	for _, o := range r.Objects {
		p := Pod{Of: o.Typed}
		var template core.PodTemplateSpec
		switch w := o.Typed.(type) {
		case *apps.Deployment:
			p.Selector, p.Replicas, template = w.Spec.Selector, w.Spec.Replicas, w.Spec.Template
		case *apps.StatefulSet:
			p.Selector, p.Replicas, template = w.Spec.Selector, w.Spec.Replicas, w.Spec.Template
		case *apps.DaemonSet:
			p.Selector, template = w.Spec.Selector, w.Spec.Template
		case *apps.ReplicaSet:
			p.Selector, p.Replicas, template = w.Spec.Selector, w.Spec.Replicas, w.Spec.Template
		case *batch.Job:
			template = w.Spec.Template
		case *batch.CronJob:
			template = w.Spec.JobTemplate.Spec.Template
		case *core.Pod:
			template = core.PodTemplateSpec{ObjectMeta: w.ObjectMeta, Spec: w.Spec}
		default:
			continue
		}
		p.Meta, p.Spec = template.ObjectMeta, template.Spec
		pods = append(pods, p)
	}
	return pods
}
