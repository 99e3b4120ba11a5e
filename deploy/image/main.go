// Command image builds the container images of our binaries as OCI archives. It needs Go and nothing else: no container engine, no
// registry, no base image.
//
// The model. For each binary and platform it compiles the binary, and makes an image of one layer from it: the binary, the license,
// the certificates of public authorities, and a user without rights. Beside that image stands its bill of materials, made from what
// the toolchain noted in the binary, as an attestation. An index names the images and attestations of all platforms, and an archive
// holds the index of one binary.
//
// It promises that the same sources, version, commit and date give the same bytes with the same Go, wherever and whenever that is. It
// refuses an image that is larger than one of ours may be. It does not push: that is for a program that reads OCI archives, as
// skopeo copy --all oci-archive:FILE docker://NAME.
//
// Nothing here runs concurrently.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// binaries are the programs that have an image.
var binaries = []binary{
	{name: "forwarder", title: "Redrive forwarder", description: "Brings failed Kafka records back when they are due"},
	{name: "dlt-replayer", title: "Redrive dlt-replayer", description: "Indexes dead letters of Kafka and replays them"},
}

type binary struct{ name, title, description string }

// maxSize is what the image of one binary for one platform may have, compressed.
const maxSize = 30 << 20

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// options say what to build, from what, and how it is called.
type options struct {
	root string // the folder of the main module
	out  string // gets the archives and the bills of materials

	tags       string // of the compiler
	platforms  []v1.Platform
	repository string // before the name of the binary
	build
}

// build is what the binaries say of themselves.
type build struct {
	version string
	commit  string
	date    time.Time // of the commit
}

func parse(args []string) (options, error) {
	var o options
	var platforms, date string
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "`folder` of the main module")
	flags.StringVar(&o.out, "out", "../../out/image", "`folder` for the archives and the bills of materials")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "`list` of os/architecture")
	flags.StringVar(&o.repository, "repository", "ghcr.io/kafka-redrive", "`name` before that of the binary; the chart looks there")
	flags.StringVar(&o.tags, "tags", "grpcnotrace", "`list` of build tags; those of make build")
	flags.StringVar(&o.version, "version", "", "`version` of the build")
	flags.StringVar(&o.commit, "commit", "", "`commit` of the build")
	flags.StringVar(&date, "date", "", "`time` of the commit in RFC 3339")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.version == "" || o.commit == "" {
		return o, errors.New("want -version, -commit and -date, and no arguments")
	}
	var err error
	if o.date, err = time.Parse(time.RFC3339, date); err != nil {
		return o, fmt.Errorf("-date: %w", err)
	}
	o.date = o.date.UTC()
	for text := range strings.SplitSeq(platforms, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" {
			return o, fmt.Errorf("-platforms: %q is not linux/ARCHITECTURE", text)
		}
		o.platforms = append(o.platforms, *platform)
	}
	return o, nil
}

func execute(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, b := range binaries {
		index, err := o.index(ctx, b, stdout)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		archive := filepath.Join(o.out, b.name+".oci.tar")
		if err := o.writeArchive(archive, b, index); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		info, err := os.Stat(archive)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(stdout, "%s  %s  %.1f MB  %s\n", o.reference(b), digest, megabytes(info.Size()), archive)
	}
	return nil
}

// reference is what an image is called. A tag has no plus sign.
func (o *options) reference(b binary) string {
	return o.repository + "/" + b.name + ":" + strings.ReplaceAll(o.version, "+", "-")
}

func megabytes(n int64) float64 { return float64(n) / (1 << 20) }
