package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// Replica is a dlt-replayer.
type Replica struct {
	Process
	// API and Admin are where it listens, in each of its lives.
	API, Admin string
}

// Metric is the sum of all samples of a metric; 0 if there is none.
func (r *Replica) Metric(ctx context.Context, name string) (float64, error) {
	body, err := r.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return testkit.Metric(string(body), name)
}

// Ready is nil if the replica says that it is ready.
func (r *Replica) Ready(ctx context.Context) error {
	_, err := r.get(ctx, "/readyz")
	return err
}

func (r *Replica) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Admin+path, nil)
	if err != nil {
		return nil, err
	}
	request.Close = true // It may be dead at the next look.
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // Only read.
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", path, response.StatusCode, body)
	}
	return body, err
}

// Freeze stops the process where it stands, and Thaw lets it go on.
func (r *Replica) Freeze() error { return r.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (r *Replica) Thaw() error { return r.Signal(syscall.SIGCONT) }
