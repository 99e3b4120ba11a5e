package testkit

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// DefaultKafkaVersion is the version of Apache Kafka that is started unless REDRIVE_TEST_KAFKA names another.
const DefaultKafkaVersion = "4.3.1"

// KafkaVersion is the version of Apache Kafka that is started.
func KafkaVersion() string {
	return cmp.Or(os.Getenv("REDRIVE_TEST_KAFKA"), DefaultKafkaVersion)
}

// KafkaAtLeast tells whether the Kafka that is started is this version, such as 4.0, or a later one: for tests of what older
// brokers do otherwise.
func KafkaAtLeast(version string) bool {
	have, want := versionNumbers(KafkaVersion()), versionNumbers(version)
	return slices.Compare(have, want) >= 0
}

// versionNumbers are the numbers between the dots. What is not a number counts as 0.
func versionNumbers(version string) []int {
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		numbers = append(numbers, n)
	}
	return numbers
}

//go:embed pom.xml
var pom []byte

// FetchKafka makes sure that the jars of the broker are in the cache folder of the user, and returns the folder they
// are in. Processes that ask at the same time wait for the first one. A fetch that is broken off is never taken for a
// complete one: the folder gets its name only at the end.
func FetchKafka(ctx context.Context) (string, error) {
	version := KafkaVersion()
	// The version becomes part of a path and of a command line.
	if !regexp.MustCompile(`^[0-9][0-9A-Za-z.-]*$`).MatchString(version) {
		return "", fmt.Errorf("REDRIVE_TEST_KAFKA: %q is not a version", version)
	}
	cache, err := cacheDir("kafka")
	if err != nil {
		return "", err
	}
	jars := filepath.Join(cache, version)
	if isDir(jars) {
		return jars, nil
	}
	unlock, err := lockFile(filepath.Join(cache, version+".lock"), true)
	if err != nil {
		return "", fmt.Errorf("lock kafka %s in the cache: %w", version, err)
	}
	defer unlock()
	if isDir(jars) {
		return jars, nil
	}
	if err := fetchJars(ctx, version, jars); err != nil {
		return "", fmt.Errorf("fetch kafka %s: %w", version, err)
	}
	return jars, nil
}

// fetchJars has Maven copy the broker and all it depends on to target. The caller holds the lock.
func fetchJars(ctx context.Context, version, target string) (err error) {
	mvn, err := lookTool("mvn", "maven")
	if err != nil {
		return err
	}
	tmp := target + ".tmp"
	if err := os.RemoveAll(tmp); err != nil { // of a process that was killed
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.MkdirAll(filepath.Join(tmp, "jars"), 0o755); err != nil {
		return err
	}
	project := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return err
	}
	// Strict checksums: a download cut short must not become a broker that fails in strange ways.
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "--strict-checksums", "--file", project,
		"-Dkafka.version="+version, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(tmp, "jars"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, lastLines(out, 20))
	}
	return os.Rename(filepath.Join(tmp, "jars"), target)
}

// lookTool finds a program in PATH, or says which Debian package holds it.
func lookTool(name, debianPackage string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not in PATH: install it (Debian, Ubuntu: apt-get install %s): %w", name, debianPackage, err)
	}
	return path, nil
}

// cacheDir returns a folder of this project in the user's cache folder, which it makes if it is not there.
func cacheDir(name string) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	dir := filepath.Join(root, "redrive", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	return dir, nil
}

// lockFile takes an exclusive lock that ends with unlock or with the process. Without wait, a lock that somebody else
// holds is the error EWOULDBLOCK. The file stays: to remove it would let a third process lock another file of that name.
func lockFile(path string, wait bool) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
