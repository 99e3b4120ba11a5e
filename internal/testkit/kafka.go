package testkit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// KafkaOptions says what cluster to start. The zero value is one broker with the settings that make tests quick.
type KafkaOptions struct {
	// Dir is an empty folder for the data, which the caller owns. Empty: a temporary one, removed by Close.
	Dir string
	// Brokers is 1 (also the default) or 3. Every node is both broker and controller: a cluster of three whose
	// second node dies has no controller either. With three, topics have replication factor 3 and min.insync.replicas 2.
	// Broker n is in the rack "rack-n".
	Brokers int
	// Props are settings for server.properties of every broker; they win over those of this package. In a value {node} stands
	// for the number of the broker and {dir} for its folder.
	Props map[string]string
	// Env is added to the environment of every broker.
	Env []string
	// Secure adds a second listener, for clients that must say who they are. Nil: there is none, and no authorizer.
	Secure *Secure
	// Heap is the largest heap of each broker, as the JVM writes it. Empty: 256m.
	Heap string
	// Log gets what the brokers log: warnings, and when they start and stop. Nil: only the tail is kept, for errors.
	Log io.Writer
}

// Kafka is a cluster of real brokers. Its methods number the brokers from 1.
type Kafka struct {
	brokers []*broker
	undo    []func() error // in reverse order, by Close
	close   func() error
}

// StartKafka starts a cluster and returns when every broker is ready. It fetches the jars of Kafka if they are not in
// the cache. ctx bounds the start, not the life of the cluster, which ends by Close or with the process.
func StartKafka(ctx context.Context, options KafkaOptions) (_ *Kafka, err error) {
	if options.Brokers == 0 {
		options.Brokers = 1
	}
	if options.Brokers != 1 && options.Brokers != 3 {
		return nil, fmt.Errorf("a cluster has 1 or 3 brokers, not %d", options.Brokers)
	}
	if options.Heap == "" {
		options.Heap = "256m"
	}
	if err := options.Secure.check(); err != nil {
		return nil, err
	}
	// Kafka 4 needs Java 17, which is what this package is in Debian 12.
	java, err := lookTool("java", "default-jre-headless")
	if err != nil {
		return nil, err
	}
	jars, err := FetchKafka(ctx)
	if err != nil {
		return nil, err
	}

	k := &Kafka{}
	k.close = sync.OnceValue(k.closeOnce)
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	dir, err := k.dataDir(options.Dir)
	if err != nil {
		return nil, err
	}
	if err := k.addBrokers(options, dir, java, jars); err != nil {
		return nil, err
	}
	id := clusterID()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, b := range k.brokers {
		group.Go(func() error { return b.format(groupCtx, id, options.Secure.formatArgs()...) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return k, k.Start(ctx)
}

// dataDir returns the folder for the data, which it removes at Close if it is not the caller's.
func (k *Kafka) dataDir(dir string) (string, error) {
	if dir != "" {
		// Brokers resolve it from their own working directory.
		return filepath.Abs(dir)
	}
	dir, err := os.MkdirTemp("", "redrive-kafka-")
	if err != nil {
		return "", err
	}
	k.undo = append(k.undo, func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// addBrokers gives every broker its ports and writes its configuration, which names the ports of all.
func (k *Kafka) addBrokers(options KafkaOptions, dir, java, jars string) error {
	out := options.Log
	if out != nil {
		out = &sharedWriter{w: out}
	}
	for n := 1; n <= options.Brokers; n++ {
		b := &broker{node: n, dir: filepath.Join(dir, fmt.Sprintf("broker-%d", n)), java: java, jars: jars, heap: options.Heap, env: options.Env, out: out}
		ports := []*int{&b.port, &b.controllerPort}
		if options.Secure != nil {
			ports = append(ports, &b.securePort)
		}
		for _, port := range ports {
			reserved, release, err := reservePort()
			if err != nil {
				return fmt.Errorf("reserve a port for broker %d: %w", n, err)
			}
			k.undo = append(k.undo, func() error { release(); return nil })
			*port = reserved
		}
		k.undo = append(k.undo, b.kill)
		k.brokers = append(k.brokers, b)
	}
	for _, b := range k.brokers {
		if err := b.writeFiles(serverProperties(b.node, k.brokers, options.Secure, options.Props)); err != nil {
			return fmt.Errorf("write the configuration of broker %d: %w", b.node, err)
		}
		if err := options.Secure.writeFiles(b.dir); err != nil {
			return fmt.Errorf("write the certificate of broker %d: %w", b.node, err)
		}
	}
	return nil
}

// Brokers returns the addresses of all brokers, running or not.
func (k *Kafka) Brokers() []string {
	addrs := make([]string, len(k.brokers))
	for i, b := range k.brokers {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", b.port)
	}
	return addrs
}

// SecureBrokers returns the addresses of the listeners that [KafkaOptions.Secure] has added.
func (k *Kafka) SecureBrokers() []string {
	addrs := make([]string, len(k.brokers))
	for i, b := range k.brokers {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", b.securePort)
	}
	return addrs
}

// LimitFiles lets no file of broker n, which runs, grow beyond so many bytes: to the broker its disk is full. -1 lifts the limit,
// and a broker that is started again has none. Linux only.
func (k *Kafka) LimitFiles(n int, bytes int64) error {
	brokers, err := k.pick([]int{n})
	if err != nil {
		return err
	}
	p := brokers[0].current()
	if p == nil || !p.running() {
		return fmt.Errorf("broker %d does not run", n)
	}
	if err := limitFiles(p.cmd.Process.Pid, bytes); err != nil {
		return fmt.Errorf("limit the files of broker %d: %w", n, err)
	}
	return nil
}

// Start starts the brokers that are named, or all, and returns when they are ready. Those that run already stay as they
// are. With most of three brokers down, start two at once: none gets ready without a majority.
func (k *Kafka) Start(ctx context.Context, n ...int) error {
	brokers, err := k.pick(n)
	if err != nil {
		return err
	}
	for _, b := range brokers {
		if err := b.launch(); err != nil {
			return err
		}
	}
	for _, b := range brokers {
		if err := b.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the brokers that are named, or all, with SIGKILL, and returns when they are gone. A broker that has died by
// itself counts as killed.
func (k *Kafka) Kill(n ...int) error { return k.each(n, (*broker).kill) }

// Stop ends the brokers that are named, or all, with SIGTERM, and returns when they are gone. One that does not stop within
// 30 s is killed, which is an error.
func (k *Kafka) Stop(n ...int) error { return k.each(n, (*broker).stop) }

// Pause makes the brokers that are named, or all, stand still: their connections stay, and nothing is answered until Resume.
func (k *Kafka) Pause(n ...int) error { return k.each(n, (*broker).pause) }

// Resume ends a Pause.
func (k *Kafka) Resume(n ...int) error { return k.each(n, (*broker).resume) }

// Running tells whether broker n has a process; it may not be ready.
func (k *Kafka) Running(n int) bool {
	return n >= 1 && n <= len(k.brokers) && k.brokers[n-1].running()
}

// LogTail returns the last lines that broker n has logged, over all its runs.
func (k *Kafka) LogTail(n int) string {
	if n < 1 || n > len(k.brokers) {
		return ""
	}
	return k.brokers[n-1].tail.String()
}

// Close kills all brokers and removes their data, unless it is in a folder of the caller. The second call does nothing
// and returns what the first one did.
func (k *Kafka) Close() error { return k.close() }

func (k *Kafka) closeOnce() error {
	var errs []error
	for _, undo := range slices.Backward(k.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// each does one thing to several brokers at the same time: a broker that stops may wait for another to take over.
func (k *Kafka) each(n []int, do func(*broker) error) error {
	brokers, err := k.pick(n)
	if err != nil {
		return err
	}
	errs := make([]error, len(brokers))
	var wait sync.WaitGroup
	for i, b := range brokers {
		wait.Go(func() { errs[i] = do(b) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// pick returns the brokers of these numbers; all if there is none.
func (k *Kafka) pick(n []int) ([]*broker, error) {
	if len(n) == 0 {
		return k.brokers, nil
	}
	picked := make([]*broker, 0, len(n))
	for _, n := range n {
		if n < 1 || n > len(k.brokers) {
			return nil, fmt.Errorf("no broker %d in a cluster of %d", n, len(k.brokers))
		}
		picked = append(picked, k.brokers[n-1])
	}
	return picked, nil
}

// clusterID returns a random id as Kafka writes them. It never starts with a dash, which the command line of the
// formatting tool would take for an option.
func clusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// sharedWriter lets several brokers write to one log.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(text)
}
