package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const (
	version = "1.2.3+test"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	date    = "2026-01-31T12:00:00Z"
)

// arguments are those of a build for the platform of this machine, whose binaries can be run here.
func arguments(root, out string) []string {
	return []string{"-root", root, "-out", out, "-platforms", "linux/" + runtime.GOARCH, "-version", version, "-commit", commit, "-date", date}
}

func TestTheArchivesHoldImagesThatRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the images are for Linux, and what they run is run here")
	}
	root, out := t.TempDir(), t.TempDir()
	copySources(t, root, "../..")
	var told bytes.Buffer
	if err := execute(t.Context(), arguments(root, out), &told); err != nil {
		t.Fatal(err)
	}
	t.Log(told.String())
	for _, b := range binaries {
		t.Run(b.name, func(t *testing.T) {
			dir := t.TempDir()
			untar(t, open(t, filepath.Join(out, b.name+".oci.tar")), dir)
			image, attestation := parts(t, b, dir)
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			saysWhatItIs(t, b, config)
			rootfs := t.TempDir()
			names := untar(t, mutate.Extract(image), rootfs)
			hasNothingElse(t, b, names)
			program := filepath.Join(rootfs, config.Config.Entrypoint[0])
			runs(t, program)
			trustsPublicHosts(t, rootfs)
			bill, err := os.ReadFile(filepath.Join(out, fmt.Sprintf("%s-linux-%s.cdx.json", b.name, runtime.GOARCH)))
			if err != nil {
				t.Fatal(err)
			}
			namesWhatIsInIt(t, program, bill)
			isAttested(t, image, attestation, bill)
		})
	}
	t.Run("the same sources make the same archives", func(t *testing.T) { areMadeAgain(t, root, out) })
}

func TestTheCommandLineIsChecked(t *testing.T) {
	good := []string{"-version", "1", "-commit", "c", "-date", date}
	if _, err := parse(good); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{
		{},
		good[2:], good[:4],
		{"-version", "1", "-commit", "c", "-date", "yesterday"},
		slices.Concat(good, []string{"-platforms", "windows/amd64"}), slices.Concat(good, []string{"-platforms", "linux"}), slices.Concat(good, []string{"x"}),
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// copySources copies what the images are made of.
func copySources(t *testing.T, to, from string) {
	t.Helper()
	for _, name := range []string{"go.mod", "go.sum", "LICENSE"} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cmd", "internal"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
}

// areMadeAgain builds everything once more, from a copy of the sources in another folder, and compares.
func areMadeAgain(t *testing.T, sources, first string) {
	t.Helper()
	root, out := t.TempDir(), t.TempDir()
	copySources(t, root, sources)
	if err := execute(t.Context(), arguments(root, out), io.Discard); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(first)
	if err != nil || len(entries) != 2*len(binaries) {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, entry := range entries {
		want, err := os.ReadFile(filepath.Join(first, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(out, entry.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is another one: %v", entry.Name(), err)
		}
	}
}

// TestTheOtherWaysToBuildSayTheSame holds what a container engine and a release do against what this program does.
func TestTheOtherWaysToBuildSayTheSame(t *testing.T) {
	o, err := parse([]string{"-version", "1", "-commit", "c", "-date", date})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"Dockerfile":       {"\nUSER " + user + "\n", "\nENV PATH=/" + folder + "\n", "FROM scratch AS base", "-tags=" + o.tags, "image.source=" + source, "image.licenses=Apache-2.0"},
		".goreleaser.yaml": {"tags: &tags [" + o.tags + "]", `"` + o.repository + `"`, "main.version={{ .Version }}", "main.commit={{ .FullCommit }}", "main.date={{ .CommitDate }}"},
		"Makefile":         {"\nBUILDTAGS = " + o.tags + "\n"},
	}
	for _, b := range binaries {
		want["Dockerfile"] = append(want["Dockerfile"], `ENTRYPOINT ["/`+folder+"/"+b.name+`"]`, "FROM base AS "+b.name, `image.title="`+b.title+`"`, `image.description="`+b.description+`"`)
		want[".goreleaser.yaml"] = append(want[".goreleaser.yaml"], "--target="+b.name, `"{{ .Env.IMAGES }}/`+b.name+`"`)
	}
	for name, texts := range want {
		content, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if !strings.Contains(string(content), text) {
				t.Errorf("%s does not say %q", name, text)
			}
		}
	}
}

func open(t *testing.T, name string) io.ReadCloser {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// untar writes an archive to a folder and returns its entries: mode, owner and name of each. Each must be a file or a folder of root
// that is as old as the commit, and may not give its owner's rights to who runs it.
func untar(t *testing.T, r io.ReadCloser, dir string) []string {
	t.Helper()
	defer r.Close() //nolint:errcheck // Only read.
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // Nothing is pending.
	var names []string
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%04o %s", header.Mode, header.Name))
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o6000 != 0 || header.ModTime.UTC().Format(time.RFC3339) != date {
			t.Errorf("%s: user %d, group %d, mode %o, modified %v", header.Name, header.Uid, header.Gid, header.Mode, header.ModTime)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(header.Name), 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = root.WriteFile(header.Name, content, os.FileMode(header.Mode).Perm())
			}
		default:
			t.Errorf("%s is of type %q", header.Name, header.Typeflag)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// parts finds the image and its attestation in a layout, after all digests in it were computed again.
func parts(t *testing.T, b binary, dir string) (image, attestation v1.Image) {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	one := manifest.Manifests[0]
	if tag, name := one.Annotations["org.opencontainers.image.ref.name"], one.Annotations["io.containerd.image.name"]; tag != "1.2.3-test" || !strings.HasSuffix(name, "/"+b.name+":"+tag) {
		t.Errorf("the image is called %q, %q", tag, name)
	}
	index, err := top.ImageIndex(one.Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err = index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if platform := manifest.Manifests[0].Platform.String(); platform != "linux/"+runtime.GOARCH {
		t.Errorf("the image is for %s", platform)
	}
	if of := manifest.Manifests[1].Annotations["vnd.docker.reference.digest"]; of != manifest.Manifests[0].Digest.String() {
		t.Errorf("the attestation is of %s", of)
	}
	var all [2]v1.Image
	for i, m := range manifest.Manifests {
		if all[i], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	if err := validate.Image(all[0]); err != nil {
		t.Error(err)
	}
	return all[0], all[1]
}

func saysWhatItIs(t *testing.T, b binary, config *v1.ConfigFile) {
	t.Helper()
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + b.name}) || len(c.Cmd) != 0 ||
		!slices.Equal(c.Env, []string{"PATH=/usr/local/bin"}) || config.Created.UTC().Format(time.RFC3339) != date {
		t.Errorf("the configuration is %+v of %v", c, config.Created)
	}
	labels := config.Config.Labels
	for name, want := range map[string]string{"version": version, "revision": commit, "created": date, "title": b.title, "source": source, "licenses": "Apache-2.0"} {
		if got := labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func hasNothingElse(t *testing.T, b binary, names []string) {
	t.Helper()
	want := []string{
		"0755 etc", "0644 etc/group", "0644 etc/passwd", "0755 etc/ssl", "0755 etc/ssl/certs", "0644 etc/ssl/certs/ca-certificates.crt", "1777 tmp",
		"0755 usr", "0755 usr/local", "0755 usr/local/bin", "0755 usr/local/bin/" + b.name,
		"0755 usr/share", "0755 usr/share/licenses", "0755 usr/share/licenses/redrive", "0644 usr/share/licenses/redrive/LICENSE",
	}
	for i := range names {
		names[i] = strings.TrimSuffix(names[i], "/")
	}
	if !slices.Equal(names, want) {
		t.Errorf("the image has\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
}

// runs starts the entry point with nothing around it that an image would not have.
func runs(t *testing.T, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "version", "-o", "json")
	cmd.Env, cmd.Dir = []string{"PATH=/usr/local/bin"}, filepath.Dir(program)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got struct{ Version, Revision, Date, Platform string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != version || got.Revision != commit || got.Date != date || got.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("version: %s", out)
	}
	// A library of the system would be missed in the image.
	executable, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer executable.Close() //nolint:errcheck // Only read.
	for _, p := range executable.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has a segment %v", p.Type)
		}
	}
}

func trustsPublicHosts(t *testing.T, rootfs string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootfs, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	n := bytes.Count(text, []byte("BEGIN CERTIFICATE"))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) || n < 100 {
		t.Errorf("%d certificates", n)
	}
}

// namesWhatIsInIt holds a bill of materials against the modules of the binary.
func namesWhatIsInIt(t *testing.T, program string, bill []byte) {
	t.Helper()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(bill), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range info.Deps {
		want = append(want, module.Path+"@"+module.Version)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.Name+"@"+c.Version)
		if c.Name != "std" && c.Hashes == nil {
			t.Errorf("%s has no sum", c.Name)
		}
	}
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the bill of materials names %d modules, the binary %d", len(got), len(want))
	}
	if c := bom.Metadata.Component; c.Version != version || len(*c.Hashes) != 1 || bom.Metadata.Timestamp != date {
		t.Errorf("the bill of materials is of %+v", *c)
	}
}

// isAttested tells if the attestation holds the bill of materials that lies beside the image, and is about the image.
func isAttested(t *testing.T, image, attestation v1.Image, bill []byte) {
	t.Helper()
	layers, err := attestation.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close() //nolint:errcheck // Only read.
	var s statement
	if err := json.NewDecoder(content).Decode(&s); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, bill); err != nil {
		t.Fatal(err)
	}
	if s.PredicateType != predicateType || len(s.Subject) != 1 || s.Subject[0].Digest["sha256"] != digest.Hex || !bytes.Equal(s.Predicate, compact.Bytes()) {
		t.Errorf("the statement is of type %s about %+v", s.PredicateType, s.Subject)
	}
}
