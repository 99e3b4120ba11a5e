package charttest

import (
	"fmt"
	"slices"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// newScheme knows every type that the chart may render.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme, gateway.Install} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}, &ScaledObject{})
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "kafka.strimzi.io", Version: "v1", Kind: "KafkaTopic"}, &KafkaTopic{})
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "kafka.strimzi.io", Version: "v1beta2", Kind: "KafkaTopic"}, &KafkaTopic{})
	return s, nil
}

// decode reads one object. What its type does not have is an error, and so is a key that stands twice.
func decode(text []byte) (runtime.Object, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := serializer.Decode(text, nil, nil)
	return object, err //nolint:wrapcheck // The caller says what was decoded.
}

// NameOf is the name of an object.
func NameOf(o runtime.Object) string { return accessor(o).GetName() }

// KindOf is the kind of an object.
func KindOf(o runtime.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

// accessor is the metadata of an object. All that the chart renders has it: a list would be none of the known objects' business.
func accessor(o runtime.Object) metav1.Object {
	a, err := meta.Accessor(o)
	if err != nil {
		return &metav1.ObjectMeta{}
	}
	return a
}

// ScaledObject is that of KEDA (keda.sh/v1alpha1), as far as the chart may set it.
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion,omitempty"`
			Kind       string `json:"kind,omitempty"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		PollingInterval *int32 `json:"pollingInterval,omitempty"`
		CooldownPeriod  *int32 `json:"cooldownPeriod,omitempty"`
		MinReplicaCount *int32 `json:"minReplicaCount,omitempty"`
		MaxReplicaCount *int32 `json:"maxReplicaCount,omitempty"`
		Fallback        *struct {
			FailureThreshold int32  `json:"failureThreshold"`
			Replicas         int32  `json:"replicas"`
			Behavior         string `json:"behavior,omitempty"`
		} `json:"fallback,omitempty"`
		Advanced *struct {
			RestoreToOriginalReplicaCount bool `json:"restoreToOriginalReplicaCount,omitempty"`
			HorizontalPodAutoscalerConfig *struct {
				Name     string         `json:"name,omitempty"`
				Behavior map[string]any `json:"behavior,omitempty"`
			} `json:"horizontalPodAutoscalerConfig,omitempty"`
		} `json:"advanced,omitempty"`
		Triggers []struct {
			Type              string            `json:"type"`
			Name              string            `json:"name,omitempty"`
			UseCachedMetrics  bool              `json:"useCachedMetrics,omitempty"`
			Metadata          map[string]string `json:"metadata"`
			MetricType        string            `json:"metricType,omitempty"`
			AuthenticationRef *struct {
				Name string `json:"name"`
				Kind string `json:"kind,omitempty"`
			} `json:"authenticationRef,omitempty"`
		} `json:"triggers"`
	} `json:"spec"`
}

// DeepCopyObject is what runtime.Object asks for. Nothing here copies: what is rendered is only read.
func (s *ScaledObject) DeepCopyObject() runtime.Object {
	out := *s
	out.Spec.Triggers = slices.Clone(s.Spec.Triggers)
	return &out
}

// KafkaTopic is that of Strimzi (kafka.strimzi.io), as far as the chart may set it.
type KafkaTopic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		TopicName  string         `json:"topicName,omitempty"`
		Partitions int32          `json:"partitions,omitempty"`
		Replicas   int32          `json:"replicas,omitempty"`
		Config     map[string]any `json:"config,omitempty"`
	} `json:"spec"`
}

// DeepCopyObject is what runtime.Object asks for, likewise.
func (k *KafkaTopic) DeepCopyObject() runtime.Object {
	out := *k
	return &out
}
