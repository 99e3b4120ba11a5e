package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says what server to start. The zero value is one with the defaults of Postgres.
type PostgresOptions struct {
	// Dir is an empty folder for the data, which the caller owns. Empty: a temporary one, removed by Close.
	Dir string
	// Settings are for postgresql.conf, over those of this package.
	Settings map[string]string
	// Log gets what the server logs. Nil: only the tail is kept, for errors.
	Log io.Writer
}

// Postgres is a server of its own: its data, its port, and its process while there is one.
type Postgres struct {
	dir      string // the data directory
	programs string
	port     int
	account  *syscall.Credential // nil: that of this process
	settings map[string]string
	out      io.Writer
	tail     lineTail

	undo  []func() error // in reverse order, by Close
	close func() error

	mu      sync.Mutex
	process *process
}

// StartPostgres makes a cluster of databases and starts a server on it, which it returns when it answers. The server never
// runs as root, which it would refuse: a process of root runs it as the user postgres, or else nobody. ctx bounds the
// start, not the life of the server, which ends by Close or with the process.
func StartPostgres(ctx context.Context, options PostgresOptions) (_ *Postgres, err error) {
	programs, err := postgresPrograms(debianPostgres)
	if err != nil {
		return nil, err
	}
	account, err := postgresAccount()
	if err != nil {
		return nil, err
	}
	p := &Postgres{programs: programs, account: account, settings: options.Settings, out: options.Log}
	p.close = sync.OnceValue(p.closeOnce)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := p.makeDir(options.Dir); err != nil {
		return nil, err
	}
	port, release, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port for postgres: %w", err)
	}
	p.port = port
	p.undo = append(p.undo, func() error { release(); return nil }, p.Kill)
	if err := p.initialise(ctx); err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// debianPostgres is where the packages of Debian put the programs of each version.
const debianPostgres = "/usr/lib/postgresql/*/bin/initdb"

// postgresPrograms is the folder that has initdb and postgres: that of the first one in PATH, or else of the newest version that
// fits the pattern.
func postgresPrograms(pattern string) (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// The link that was found may stand beside links to other programs only.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", fmt.Errorf("find the programs of postgres: %w", err)
		}
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("find the programs of postgres: %w", err)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0: last
		return n
	}
	if len(found) == 0 {
		return "", errors.New("initdb, a program of postgres, is not installed: apt-get install postgresql")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// postgresAccount is the user that the server runs as; nil where that is the one we are.
func postgresAccount() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the id of user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the group of user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres does not run as root, and there is neither a user postgres nor nobody: apt-get install postgresql")
}

// makeDir makes the data directory, in a folder of the caller or a temporary one, and gives it to the account.
func (p *Postgres) makeDir(dir string) error {
	if dir == "" {
		made, err := os.MkdirTemp("", "redrive-postgres-")
		if err != nil {
			return fmt.Errorf("make a folder for postgres: %w", err)
		}
		p.undo = append(p.undo, func() error { return os.RemoveAll(made) })
		// The account has to pass through it.
		if err := os.Chmod(made, 0o755); err != nil {
			return fmt.Errorf("open the folder of postgres: %w", err)
		}
		dir = made
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the folder of postgres: %w", err)
	}
	p.dir = filepath.Join(dir, "data")
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory of postgres: %w", err)
	}
	if p.account == nil {
		return nil
	}
	if err := os.Chown(p.dir, int(p.account.Uid), int(p.account.Gid)); err != nil {
		return fmt.Errorf("give the data directory away: %w", err)
	}
	return nil
}

// command is a program of Postgres, to be run as its account. It may not be able to enter the folder we are in.
func (p *Postgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account}
	cmd.Env = append(Environment(), "LC_ALL=C.UTF-8", "TZ=UTC")
	return cmd
}

func (p *Postgres) initialise(ctx context.Context) error {
	cmd := p.command("initdb", "-D", p.dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	var out outputTail
	cmd.Stdout, cmd.Stderr = &out, &out
	ended := make(chan error, 1)
	if err := StartChild(cmd, func(err error) { ended <- err }); err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("initdb: %w\n%s", err, out.String())
		}
	case <-ctx.Done():
		_ = cmd.Process.Kill() // It may be gone.
		return fmt.Errorf("initdb: %w", errors.Join(context.Cause(ctx), <-ended))
	}
	return p.configure()
}

// configure writes the settings. Without fsync a kill of the server loses nothing; a kill of the machine would.
func (p *Postgres) configure() error {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "100",
		"fsync": "off", "timezone": "UTC", "log_timezone": "UTC", "log_checkpoints": "off", "shared_buffers": "128MB",
	}
	maps.Copy(settings, p.settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	file, err := os.OpenFile(filepath.Join(p.dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure postgres: %w", err)
	}
	_, err = file.WriteString(text.String())
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("configure postgres: %w", err)
	}
	return nil
}

// URL is where a database of the server is, whether it runs or not; "" is the one named postgres.
func (p *Postgres) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// CreateDatabase makes an empty database and returns where it is.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	if err := p.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return p.URL(name), nil
}

func (p *Postgres) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, p.URL(""))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// Start starts the server if it does not run, and returns when it answers. After a kill it recovers first.
func (p *Postgres) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return Await(ctx, func(ctx context.Context) error {
		if err := p.launch(); err != nil {
			return err
		}
		// A server that was killed may leave processes which hold its memory for a moment: it ends then, and is tried again.
		if err := p.exec(ctx, "SELECT 1"); err != nil {
			return fmt.Errorf("postgres does not answer: %w; its log ends\n%s", err, p.tail.String())
		}
		return nil
	})
}

// launch starts the process if there is none.
func (p *Postgres) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil && p.process.running() {
		return nil
	}
	next := &process{ready: make(chan struct{}), done: make(chan struct{})}
	log := &logWriter{tail: &p.tail, out: p.out, ready: next.ready}
	next.cmd = p.command("postgres", "-D", p.dir, "-p", strconv.Itoa(p.port))
	next.cmd.Stdout, next.cmd.Stderr = log, log
	// Workers that outlive a killed server for a moment hold its log open; they shall not hold up the wait for its end.
	next.cmd.WaitDelay = time.Second
	if err := StartChild(next.cmd, func(err error) {
		next.err = err
		close(next.done)
	}); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	p.process = next
	return nil
}

// Kill ends the server and all its processes with SIGKILL, and returns when the server is gone.
func (p *Postgres) Kill() error { return p.end(syscall.SIGKILL) }

// Stop ends the server in order: it breaks connections off and writes all it has.
func (p *Postgres) Stop() error { return p.end(syscall.SIGINT) }

func (p *Postgres) end(sig syscall.Signal) error {
	p.mu.Lock()
	current := p.process
	p.mu.Unlock()
	if current == nil || !current.running() {
		return nil
	}
	if sig == syscall.SIGKILL {
		killWorkers(current.cmd.Process.Pid)
	}
	if err := current.signal(sig); err != nil {
		return fmt.Errorf("end postgres: %w", err)
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-current.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("postgres did not end in %v; its log ends\n%s", stopLimit, p.tail.String())
	}
}

// Running tells whether the server has a process; it may not answer yet.
func (p *Postgres) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process != nil && p.process.running()
}

// LogTail returns the last lines that the server has logged, over all its runs.
func (p *Postgres) LogTail() string { return p.tail.String() }

// Close kills the server and removes its data, unless that is in a folder of the caller. The second call does nothing and
// returns what the first one did.
func (p *Postgres) Close() error { return p.close() }

func (p *Postgres) closeOnce() error {
	var errs []error
	for _, undo := range slices.Backward(p.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// outputTail keeps the last lines of a command.
type outputTail struct{ lineTail }

func (o *outputTail) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		o.add(strings.TrimSuffix(line, "\n"))
	}
	return len(text), nil
}
