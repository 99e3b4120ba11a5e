// Package rendered starts what the chart would start: the commands, variables, files and secrets of its rendered pods, with the
// programs as they are shipped, on real Apache Kafka and real Postgres, and asks them by the probes of the pod.
//
// The model. A cluster is what the chart has rendered and the Secrets that a user has made beside it. It starts a pod as a
// kubelet does: the containers that run first, one after the other, then the program, again whenever it ends; and it
// asks the probes. Of what is rendered it changes where files are mounted and which ports are taken, since all pods
// share one machine here, and it answers for the DNS of the cluster. Everything else is what Kubernetes would run.
//
// It is no Kubernetes: nothing is scheduled, no policy is enforced, no root file system is read-only.
package rendered

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

const (
	repository = "../../../.."
	chartDir   = "../../redrive"
)

// programs is the folder with the programs under test, each under the name that its image has. TestMain has no other way to hand
// it to the tests.
var programs string

func TestMain(m *testing.M) {
	testkit.MainWithPrograms(m, func(ctx context.Context, dir string) error {
		programs = dir
		return build(ctx, dir)
	})
}

// build compiles the programs as make build does, in their own module: with the libraries that they are shipped with.
func build(ctx context.Context, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", repository, "-trimpath", "-tags", "grpcnotrace", "-o", target+string(filepath.Separator), "./cmd/forwarder", "./cmd/dlt-replayer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
