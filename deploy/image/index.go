package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// index builds the images of a binary for all platforms.
func (o *options) index(ctx context.Context, b binary, stdout io.Writer) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var attestations []mutate.IndexAddendum
	for _, platform := range o.platforms {
		dir, err := os.MkdirTemp("", "redrive-image-")
		if err != nil {
			return nil, err
		}
		image, bill, err := o.compileAndPack(ctx, filepath.Join(dir, b.name), b, platform)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		size, err := sizeOf(image)
		if err != nil {
			return nil, err
		}
		if size > maxSize {
			return nil, fmt.Errorf("%s: the image has %.1f MB, more than %d", platform, megabytes(size), maxSize>>20)
		}
		name := fmt.Sprintf("%s-%s-%s.cdx.json", b.name, platform.OS, platform.Architecture)
		if err := os.WriteFile(filepath.Join(o.out, name), bill, 0o644); err != nil {
			return nil, err
		}
		attestation, err := o.attest(b, image, bill)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		attestations = append(attestations, attestation)
		_, _ = fmt.Fprintf(stdout, "%s %s  %.1f MB\n", b.name, platform, megabytes(size))
	}
	return mutate.AppendManifests(index, attestations...), nil
}

func (o *options) compileAndPack(ctx context.Context, program string, b binary, platform v1.Platform) (v1.Image, []byte, error) {
	if err := o.compile(ctx, program, b, platform); err != nil {
		return nil, nil, err
	}
	image, err := o.image(program, b, platform)
	if err != nil {
		return nil, nil, err
	}
	bill, err := o.bill(program, b)
	return image, bill, err
}

// sizeOf is what a registry stores of an image.
func sizeOf(image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	size := manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}

// What a bill of materials is to those who look for one: a statement of in-toto about the manifest of the image, in the form in which
// BuildKit puts it into an index.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://cyclonedx.org/bom"
	inTotoMedia   = "application/vnd.in-toto+json"
)

type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// attest makes the manifest that ties a bill of materials to an image.
func (o *options) attest(b binary, image v1.Image, bill []byte) (mutate.IndexAddendum, error) {
	var none mutate.IndexAddendum
	digest, err := image.Digest()
	if err != nil {
		return none, err
	}
	content, err := json.Marshal(statement{
		Type:          statementType,
		Subject:       []subject{{Name: o.reference(b), Digest: map[string]string{digest.Algorithm: digest.Hex}}},
		PredicateType: predicateType,
		Predicate:     bill,
	})
	if err != nil {
		return none, err
	}
	// Not of a platform, so that nobody runs it.
	nowhere := v1.Platform{OS: "unknown", Architecture: "unknown"}
	attestation, err := o.configured(&v1.ConfigFile{OS: nowhere.OS, Architecture: nowhere.Architecture}, mutate.Addendum{
		Layer:       static.NewLayer(content, inTotoMedia),
		Annotations: map[string]string{"in-toto.io/predicate-type": predicateType},
		MediaType:   inTotoMedia,
	})
	return mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
		Platform: &nowhere,
		Annotations: map[string]string{
			"vnd.docker.reference.type":   "attestation-manifest",
			"vnd.docker.reference.digest": digest.String(),
		},
	}}, err
}

// writeArchive writes an index with all it names as an OCI layout in a tar file.
func (o *options) writeArchive(file string, b binary, index v1.ImageIndex) (err error) {
	dir, err := os.MkdirTemp("", "redrive-layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The archive has one entry, which is the index: some programs take no archive with more.
	folder, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	reference := o.reference(b)
	names := layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": path.Base(reference)[len(b.name)+1:],
		"io.containerd.image.name":          reference,
	})
	if err := folder.AppendIndex(index, names); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	target, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(o.tarFolder(target, dir), target.Close())
}

// tarFolder writes the files of a folder in the order of their names.
func (o *options) tarFolder(w io.Writer, dir string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return archive.WriteHeader(o.header(filepath.ToSlash(name)+"/", tar.TypeDir, 0o755, 0))
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return pack(archive, o.header(filepath.ToSlash(name), tar.TypeReg, 0o644, len(content)), content)
	})
	return errors.Join(err, archive.Close())
}

func pack(archive *tar.Writer, header *tar.Header, content []byte) error {
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
