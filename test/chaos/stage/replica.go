package stage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	sum := 0.0
	for lines := bufio.NewScanner(strings.NewReader(string(body))); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", line, err)
		}
		sum += value
	}
	return sum, nil
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
