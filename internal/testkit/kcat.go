package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// RunKcat runs kcat, a client built on librdkafka, with this standard input, and returns its standard output. An error
// holds the end of what kcat had to say.
func RunKcat(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	kcat, err := lookTool("kcat", "kcat")
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kcat, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kcat %q: %w\n%s", args, err, lastLines(stderr.Bytes(), 20))
	}
	return stdout.Bytes(), nil
}

// Kcat is [RunKcat] in a test: it fails the test when kcat is missing, fails, or takes longer than a minute.
func Kcat(t testing.TB, stdin []byte, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := RunKcat(ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
