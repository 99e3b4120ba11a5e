package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user has no rights anywhere and no entry on any host. The chart names the same.
	user = "65532:65532"
	// folder is where the binary lies. It is in PATH, so that a command of it can be run in a container by its name.
	folder = "usr/local/bin"
	source = "https://github.com/kafka-redrive/redrive"
)

// compile builds a static binary for a platform. What the surroundings set, and what would be noted of them, is left out.
func (o *options) compile(ctx context.Context, target string, b binary, platform v1.Platform) error {
	link := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s -X main.date=%s", o.version, o.commit, o.date.Format(time.RFC3339))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", o.tags, "-ldflags", link, "-o", target, "./cmd/"+b.name)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// image packs a binary.
func (o *options) image(program string, b binary, platform v1.Platform) (v1.Image, error) {
	content, err := o.layer(program, b)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("compress the layer: %w", err)
	}
	return o.configured(&v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Config: v1.Config{
			User:       user,
			WorkingDir: "/",
			Env:        []string{"PATH=/" + folder},
			Entrypoint: []string{"/" + folder + "/" + b.name},
			Labels: map[string]string{
				"org.opencontainers.image.title":       b.title,
				"org.opencontainers.image.description": b.description,
				"org.opencontainers.image.version":     o.version,
				"org.opencontainers.image.revision":    o.commit,
				"org.opencontainers.image.created":     o.date.Format(time.RFC3339),
				"org.opencontainers.image.source":      source,
				"org.opencontainers.image.licenses":    "Apache-2.0",
			},
		},
	}, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.date}, CreatedBy: "deploy/image", Comment: b.name + " " + o.version}})
}

// configured makes an image of one layer.
func (o *options) configured(config *v1.ConfigFile, layer mutate.Addendum) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	config.Created = v1.Time{Time: o.date}
	config.RootFS.Type = "layers"
	image, err := mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, layer)
}

// file is a file or, with a slash at its end, a folder of the image.
type file struct {
	name    string
	mode    int64
	content []byte
}

// layer is all that the image has, as a tar file.
func (o *options) layer(program string, b binary) ([]byte, error) {
	executable, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, f := range []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nredrive:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/none\nredrive:x:65532:65532:redrive:/:/none\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{"tmp/", 0o1777, nil}, // Of the ledger in a file; anyone may write there.
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{folder + "/" + b.name, 0o755, executable},
		{"usr/share/", 0o755, nil},
		{"usr/share/licenses/", 0o755, nil},
		{"usr/share/licenses/redrive/", 0o755, nil},
		{"usr/share/licenses/redrive/LICENSE", 0o644, license},
	} {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(f.name, "/") {
			kind = tar.TypeDir
		}
		if err := pack(archive, o.header(f.name, kind, f.mode, len(f.content)), f.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// header is that of a file which belongs to root and is as old as the commit.
func (o *options) header(name string, kind byte, mode int64, size int) *tar.Header {
	return &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(size), ModTime: o.date, Format: tar.FormatUSTAR}
}

// authorities are the certificates of those who sign for public hosts, in the form in which Go and others look for them. Those that
// are trusted only under a condition are left out: this form can not state one.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // A buffer takes all.
		}
	}
	return text.Bytes()
}
