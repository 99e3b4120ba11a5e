package rendered

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/kafka-redrive/redrive/deploy/helm/charttest"
	"github.com/kafka-redrive/redrive/internal/testkit"
)

// patience is how long a state may take to come about that takes seconds on a machine that is not busy.
const patience = 90 * time.Second

// cluster is what the pods live in. Its methods are for the goroutine of the test.
type cluster struct {
	t        *testing.T
	rendered *charttest.Rendered
	secrets  map[string]map[string]string // those that the user has made, by name and key
	claims   map[string]string            // the folder of each PersistentVolumeClaim
	running  []*pod
}

// install renders the chart for the values of a user, who has made the secrets.
func install(t *testing.T, values string, secrets map[string]map[string]string) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("real Kafka is left out by -short")
	}
	chart, err := charttest.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := charttest.Values([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	r, err := chart.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, rendered: r, secrets: secrets, claims: map[string]string{}}
}

// podOf is the only pod of what the chart has rendered whose name starts so, as in Deployment/redrive-forwarder.
func (c *cluster) podOf(prefix string) charttest.Pod {
	c.t.Helper()
	var found []charttest.Pod
	for _, p := range c.rendered.Pods() {
		if strings.HasPrefix(p.Name(), prefix) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		c.t.Fatalf("%d pods of %s are rendered, want one", len(found), prefix)
	}
	return found[0]
}

// image is the program that an image starts: the last part of its name without the version.
func image(name string) string {
	base := path.Base(name)
	if i := strings.IndexAny(base, ":@"); i >= 0 {
		base = base[:i]
	}
	return filepath.Join(programs, base)
}

// place is where the files and the ports of one pod are on this machine.
type place struct {
	c       *cluster
	name    string // of the pod
	pod     charttest.Pod
	dir     string
	volumes map[string]string // folders by name
	ports   map[int32]int     // by that of the pod
}

// find makes room for a pod: folders for its volumes, and free ports for those that it names.
func (c *cluster) find(p charttest.Pod, name string) *place {
	c.t.Helper()
	l := &place{c: c, name: name, pod: p, dir: c.t.TempDir(), volumes: map[string]string{}, ports: map[int32]int{}}
	for _, container := range p.Spec.Containers {
		for _, port := range container.Ports {
			l.ports[port.ContainerPort] = testkit.FreePort(c.t)
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			l.volumes[v.Name] = c.claim(v.PersistentVolumeClaim.ClaimName)
			continue
		}
		l.volumes[v.Name] = filepath.Join(l.dir, v.Name)
		if err := os.Mkdir(l.volumes[v.Name], 0o700); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, v := range p.Spec.Volumes {
		l.fill(v)
	}
	return l
}

// claim is the folder of a PersistentVolumeClaim, which outlives pods. The chart must have rendered it.
func (c *cluster) claim(name string) string {
	c.t.Helper()
	if _, err := charttest.Find[*core.PersistentVolumeClaim](c.rendered, name); err != nil {
		c.t.Fatal(err)
	}
	if c.claims[name] == "" {
		c.claims[name] = c.t.TempDir()
	}
	return c.claims[name]
}

// fill writes the files of a volume.
func (l *place) fill(v core.Volume) {
	l.c.t.Helper()
	var files map[string]string
	var items []core.KeyToPath
	switch {
	case v.ConfigMap != nil:
		m, err := charttest.Find[*core.ConfigMap](l.c.rendered, v.ConfigMap.Name)
		if err != nil {
			l.c.t.Fatal(err)
		}
		files, items = maps.Clone(m.Data), v.ConfigMap.Items
		for key, text := range files {
			// It names files and ports. What a Secret holds is not ours to change.
			files[key] = l.here(text)
		}
	case v.Secret != nil:
		files, items = l.c.secret(v.Secret.SecretName), v.Secret.Items
	case v.EmptyDir != nil, v.PersistentVolumeClaim != nil:
		return
	default:
		l.c.t.Fatalf("%s: the volume %s is of a kind that is not known here", l.pod.Name(), v.Name)
	}
	if len(items) == 0 {
		for key := range files {
			items = append(items, core.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		text, ok := files[item.Key]
		if !ok {
			l.c.t.Fatalf("%s: the volume %s takes the key %s, which is not there", l.pod.Name(), v.Name, item.Key)
		}
		if err := os.WriteFile(filepath.Join(l.volumes[v.Name], item.Path), []byte(text), 0o600); err != nil {
			l.c.t.Fatal(err)
		}
	}
}

// secret is what a Secret holds, of the chart or of the user.
func (c *cluster) secret(name string) map[string]string {
	c.t.Helper()
	if s, ok := c.secrets[name]; ok {
		return s
	}
	s, err := charttest.Find[*core.Secret](c.rendered, name)
	if err != nil {
		c.t.Fatalf("nobody has made it: %v", err)
	}
	return s.StringData
}

// here is a text of the pod with the folders and the ports that they have on this machine.
func (l *place) here(text string) string {
	for port, ours := range l.ports {
		text = regexp.MustCompile(fmt.Sprintf(`:%d\b`, port)).ReplaceAllString(text, fmt.Sprintf(":%d", ours))
	}
	mounts := map[string]string{}
	for _, c := range l.pod.Containers() {
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = l.volumes[m.Name]
		}
	}
	// The longest first: one may lie below another.
	order := slices.SortedFunc(maps.Keys(mounts), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, from := range order {
		pairs = append(pairs, from, mounts[from])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// command is what the kubelet would run for a container.
func (l *place) command(c core.Container) *exec.Cmd {
	l.c.t.Helper()
	environ := l.environment(c)
	args := slices.Concat(c.Command, c.Args)
	for i, a := range args {
		args[i] = l.resolve(l.here(expand(a, environ)))
	}
	program := image(c.Image)
	if len(c.Command) > 0 {
		program, args = filepath.Join(programs, path.Base(args[0])), args[1:]
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = l.dir, environ
	return cmd
}

// environment is the one of a container: what the kubelet and the image give, and nothing of this machine.
func (l *place) environment(c core.Container) []string {
	l.c.t.Helper()
	environ := []string{"PATH=/usr/bin:/bin", "HOME=/", "HOSTNAME=" + l.name}
	for _, from := range c.EnvFrom {
		if from.SecretRef == nil {
			l.c.t.Fatalf("%s: variables from something that is no Secret are not known here", l.pod.Name())
		}
		for key, value := range l.c.secret(from.SecretRef.Name) {
			environ = append(environ, from.Prefix+key+"="+value)
		}
	}
	for _, e := range c.Env {
		value := l.here(expand(e.Value, environ))
		if e.ValueFrom != nil {
			value = l.valueOf(e)
		}
		environ = append(environ, e.Name+"="+value)
	}
	if _, ok := l.pod.Port("http"); !ok && c.Name == "replayer" {
		// The default port is that of a pod which has an address of its own.
		environ = append(environ, "REDRIVE_REPLAYER_API_ADDRESS=127.0.0.1:"+strconv.Itoa(l.port(apiPort)))
	}
	return environ
}

// apiPort is where the API listens if nothing else is said.
const apiPort = 9402

// port is where a port of the pod is, be it named or not.
func (l *place) port(of int32) int {
	if l.ports[of] == 0 {
		l.ports[of] = testkit.FreePort(l.c.t)
	}
	return l.ports[of]
}

// valueOf is a variable that is taken from elsewhere.
func (l *place) valueOf(e core.EnvVar) string {
	l.c.t.Helper()
	switch from := e.ValueFrom; {
	case from.SecretKeyRef != nil:
		value, ok := l.c.secret(from.SecretKeyRef.Name)[from.SecretKeyRef.Key]
		if !ok {
			l.c.t.Fatalf("%s: %s is the key %s of Secret %s, which it does not have", l.pod.Name(), e.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Name)
		}
		return value
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
		return l.name
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
		return charttest.Namespace
	default:
		l.c.t.Fatalf("%s: where %s comes from is not known here", l.pod.Name(), e.Name)
		return ""
	}
}

// expand puts variables in where $(NAME) stands, as the kubelet does.
func expand(text string, environ []string) string {
	for _, pair := range slices.Backward(environ) {
		name, value, _ := strings.Cut(pair, "=")
		text = strings.ReplaceAll(text, "$("+name+")", value)
	}
	return text
}

// resolve is the DNS of the cluster: a Service with a port is the pod that runs behind it.
func (l *place) resolve(text string) string {
	for _, s := range charttest.All[*core.Service](l.c.rendered) {
		for _, port := range s.Spec.Ports {
			name := s.Name + "." + s.Namespace + ":" + strconv.Itoa(int(port.Port))
			if !strings.Contains(text, name) {
				continue
			}
			for _, p := range l.c.running {
				if number, ok := p.at.pod.Port(port.TargetPort.String()); ok && selects(s.Spec.Selector, p.at.pod.Meta.Labels) {
					text = strings.ReplaceAll(text, name, net.JoinHostPort("127.0.0.1", strconv.Itoa(p.at.ports[number])))
				}
			}
		}
	}
	return text
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// complete runs all containers of a pod that comes to an end by itself, a job or a test, and returns what they have written. Each must
// end with the exit code that stands in its place.
func (c *cluster) complete(prefix string, codes ...int) string {
	c.t.Helper()
	spec := c.podOf(prefix)
	if len(spec.Spec.Containers) != len(codes) {
		c.t.Fatalf("%s has %d containers, want %d", spec.Name(), len(spec.Spec.Containers), len(codes))
	}
	l := c.find(spec, spec.Name())
	var all strings.Builder
	for i, container := range spec.Spec.Containers {
		out, err := run(c.t, l.command(container))
		if got := exitCode(err); got != codes[i] {
			c.t.Fatalf("%s, container %s: exit code %d, want %d: %v\n%s", spec.Name(), container.Name, got, codes[i], err, out)
		}
		all.WriteString(out)
	}
	return all.String()
}

// run runs a command to its end and returns what it has written.
func run(t *testing.T, cmd *exec.Cmd) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bounded := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	bounded.Dir, bounded.Env = cmd.Dir, cmd.Env
	out, err := bounded.CombinedOutput()
	return string(out), err
}

// exitCode is how a command ended; -1 if it did not by itself.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Run wraps nothing around it.
		return exit.ExitCode()
	}
	return -1
}
