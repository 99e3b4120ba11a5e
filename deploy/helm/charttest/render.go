// Package charttest answers what the chart of Redrive makes of a set of values, by Helm's own engine and without a cluster.
//
// The model. [Load] reads the chart; [Chart.Render] checks values against its schema, renders its templates and decodes
// each object strictly: against the types of Kubernetes, of the Prometheus operator and of the Gateway API, and for KEDA and
// Strimzi against the few fields that the chart may set. [Rendered.Pods] are the pods that the objects would start. The
// tests of this package hold both against what is promised of the chart; those of package rendered start what the pods would.
//
// It promises that an object with a field that its type does not have is an error. It does not know what a cluster adds or
// refuses beyond the types, such as admission rules. A Chart may be used by several goroutines, a Rendered is only read.
package charttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Release and Namespace are what every render is named.
const (
	Release   = "redrive"
	Namespace = "streaming"
)

// kubeVersion is the oldest Kubernetes that still gets fixes when the chart is written; the chart's kubeVersion must take it.
const kubeVersion = "v1.33.0"

// Chart is a chart as Helm has loaded it.
type Chart struct{ chart *chart.Chart }

// Load reads the chart in a folder.
func Load(dir string) (*Chart, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", dir, err)
	}
	return &Chart{c}, nil
}

// AppVersion is the version of the product that the chart installs.
func (c *Chart) AppVersion() string { return c.chart.Metadata.AppVersion }

// File is a file of the chart that is no template, by its path in the chart.
func (c *Chart) File(name string) ([]byte, bool) {
	for _, f := range c.chart.Files {
		if f.Name == name {
			return f.Data, true
		}
	}
	return nil, false
}

// Object is one rendered object.
type Object struct {
	Template string         // the file of the chart that it is from
	Text     string         // as it was rendered
	Typed    runtime.Object // as its type has it
}

// Rendered is what a chart makes of values.
type Rendered struct {
	Objects []Object
	Notes   string
}

// Values reads values in the form of values.yaml.
func Values(text []byte) (map[string]any, error) {
	values, err := common.ReadValues(text)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	return values, nil
}

// Render renders the chart for the values, which lie over those of its values.yaml, and decodes every object. apis are
// those that the cluster has beside the ones of Kubernetes itself, as in monitoring.coreos.com/v1.
func (c *Chart) Render(values map[string]any, apis ...string) (*Rendered, error) {
	files, err := c.render(values, apis)
	if err != nil {
		return nil, err
	}
	r := &Rendered{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		template := strings.TrimPrefix(name, c.chart.Name()+"/")
		switch base := path.Base(name); {
		case base == "NOTES.txt":
			r.Notes = files[name]
			continue
		case strings.HasPrefix(base, "_"):
			continue
		}
		if err := r.add(template, files[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", template, err)
		}
	}
	return r, nil
}

func (c *Chart) render(values map[string]any, apis []string) (map[string]string, error) {
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("read version: %w", err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), apis...)
	release := common.ReleaseOptions{Name: Release, Namespace: Namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c.chart, values, release, capabilities)
	if err != nil {
		return nil, err //nolint:wrapcheck // It is the message that the user gets.
	}
	return engine.Engine{}.RenderWithContext(context.Background(), c.chart, all) //nolint:wrapcheck // Likewise.
}

// add decodes the documents of one file.
func (r *Rendered) add(template, text string) error {
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text)))
	defer documents.Close() //nolint:errcheck // It is a string.
	for {
		// The decoder hands out a document of any size only if there is room for it.
		buffer := make([]byte, len(text)+1)
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("split: %w", err)
		}
		document := bytes.TrimSpace(buffer[:n])
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return fmt.Errorf("read: %w\n%s", err, document)
		}
		if content == nil { // Only comments.
			continue
		}
		typed, err := decode(document)
		if err != nil {
			return fmt.Errorf("decode: %w\n%s", err, document)
		}
		r.Objects = append(r.Objects, Object{Template: template, Text: string(document), Typed: typed})
	}
}

// Find returns the object of this type and name.
func Find[T runtime.Object](r *Rendered, name string) (T, error) {
	for _, o := range r.Objects {
		if typed, ok := o.Typed.(T); ok && NameOf(typed) == name {
			return typed, nil
		}
	}
	var none T
	return none, fmt.Errorf("no %T named %q is rendered", none, name)
}

// All returns the objects of this type.
func All[T runtime.Object](r *Rendered) []T {
	var found []T
	for _, o := range r.Objects {
		if typed, ok := o.Typed.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// CIValues are the sets of values that the chart comes with for its tests, by name: ci/NAME-values.yaml.
func CIValues(dir string) (map[string]map[string]any, error) {
	files, err := fs.Glob(os.DirFS(dir), "ci/*-values.yaml")
	if err != nil {
		return nil, fmt.Errorf("find values: %w", err)
	}
	sets := make(map[string]map[string]any, len(files))
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		values, err := Values(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		sets[strings.TrimSuffix(path.Base(file), "-values.yaml")] = values
	}
	return sets, nil
}

// sorted are the objects by kind and name, so that where a template stands does not matter.
func (r *Rendered) sorted() []Object {
	return slices.SortedFunc(slices.Values(r.Objects), func(a, b Object) int {
		return cmp.Or(cmp.Compare(KindOf(a.Typed), KindOf(b.Typed)), cmp.Compare(NameOf(a.Typed), NameOf(b.Typed)))
	})
}
