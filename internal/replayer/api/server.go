package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
	"github.com/kafka-redrive/redrive/internal/tracing"
)

const (
	defaultMaxBody = 1 << 20

	// requestTimeout is how long a look may take, a stream excepted.
	requestTimeout = 30 * time.Second
	// effectTimeout is how long a plan, a job or a change may take, which may be of millions of letters.
	effectTimeout = 10 * time.Minute
	// writeTimeout is how long a reader may take to take an answer, or the next part of a stream.
	writeTimeout = 60 * time.Second
	// shutdownGrace is what requests under way get when the process stops.
	shutdownGrace = 2 * time.Second
)

// Ledger is what the API needs of deadletter.Ledger.
type Ledger interface {
	deadletter.Catalogue
	deadletter.Operating
	Progress(ctx context.Context) ([]deadletter.Progress, error)
	Job(ctx context.Context, id string) (deadletter.Job, error)
	Jobs(ctx context.Context, after string, limit int) ([]deadletter.Job, error)
	Items(ctx context.Context, job string, from int64, limit int, states ...deadletter.ItemState) ([]deadletter.Item, error)
	ControlJob(ctx context.Context, id string, change deadletter.Change) (deadletter.Job, error)
	Ping(ctx context.Context) error
}

// Replayer is what the API needs of replay.Replayer.
type Replayer interface {
	// Plan says what a request would do.
	Plan(ctx context.Context, request replay.Request) (replay.Plan, error)
	// Submit creates a job, or returns the one that the same Spec.Request has created.
	Submit(ctx context.Context, request replay.Request) (job deadletter.Job, created bool, err error)
	// Payload fetches the record of a letter.
	Payload(ctx context.Context, letter deadletter.Letter) (deadletter.Payload, error)
	// Read reads the records of letters from their topics.
	Read(ctx context.Context, letters []deadletter.Letter) ([]replay.Read, error)
}

// Radar is what the API needs of expiry.Radar.
type Radar interface {
	// Within is how far ahead a request looks that does not say.
	Within() time.Duration
	// Topics are the dead-letter topics that are watched.
	Topics() []string
	// Cuts are what selects the letters that expire within a time; none: no letter does.
	Cuts(ctx context.Context, topics []string, within time.Duration) ([]deadletter.Cut, error)
	// Until is the moment before which a letter is not removed.
	Until(letter *deadletter.Letter) (time.Time, bool)
	// Count counts what expires within a time, by topic.
	Count(ctx context.Context, topics []string, within time.Duration) ([]expiry.Expiring, error)
	// Waiting are the records that retention takes before they have had their turn, and what could not be looked at.
	Waiting(ctx context.Context, topics []string, within time.Duration) ([]expiry.Waiting, []error)
}

// Options are what a Server is made of. Ledger, Replayer, Radar and Logger must be given.
type Options struct {
	// Address is where the server listens. Without Tokens it must be on loopback.
	Address  string
	Ledger   Ledger
	Replayer Replayer
	Radar    Radar
	// Topics are the configured dead-letter topics.
	Topics []string
	Tokens []Token
	// MaxBody bounds the body of a request, in bytes. 0 is 1 MiB.
	MaxBody int64
	// BulkLimit is how many letters a change can have without its caller having said the count. 0 is no limit.
	BulkLimit int64
	// Version is that of the program.
	Version string
	Logger  *slog.Logger
	// Registerer takes the metrics. Nil: they are not shown.
	Registerer prometheus.Registerer
	// Tracer makes a span of each request. Nil: it makes none.
	Tracer *tracing.Tracer
}

// Server serves the API.
type Server struct {
	listener net.Listener
	server   *http.Server
	handler  *handler
	loopback bool
}

// New listens, and serves nothing before Serve. It refuses an address beyond loopback where there are no tokens.
func New(ctx context.Context, options Options) (*Server, error) {
	switch {
	case options.Ledger == nil:
		return nil, errors.New("api: no ledger")
	case options.Replayer == nil:
		return nil, errors.New("api: no replayer")
	case options.Radar == nil:
		return nil, errors.New("api: no radar")
	case options.Logger == nil:
		return nil, errors.New("api: no logger")
	case options.MaxBody < 0 || options.BulkLimit < 0:
		return nil, errors.New("api: a limit is negative")
	}
	if err := checkTokens(options.Tokens); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	h, err := newHandler(options)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", options.Address)
	if err != nil {
		return nil, fmt.Errorf("api address: %w", err)
	}
	s := &Server{listener: listener, handler: h, loopback: onLoopback(listener.Addr())}
	// What a name or an empty host stands for is known only now.
	if !s.loopback && len(options.Tokens) == 0 {
		_ = listener.Close()
		return nil, fmt.Errorf("api address %s is reachable from other machines, and there are no tokens: give replayer.api.tokens, or an address such as 127.0.0.1:9402", options.Address)
	}
	if options.Registerer != nil {
		if err := h.metrics.register(options.Registerer); err != nil {
			_ = listener.Close()
			return nil, fmt.Errorf("api metrics: %w", err)
		}
	}
	s.server = &http.Server{
		Handler:           options.Tracer.Handler(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(options.Logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// onLoopback tells whether only this machine reaches the address.
func onLoopback(address net.Addr) bool {
	at, err := netip.ParseAddrPort(address.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Handler is what the server serves.
func (s *Server) Handler() http.Handler { return s.server.Handler }

// SetTokens replaces the tokens; requests under way go on with those before. It changes nothing where it returns an error:
// if a token is not possible, or if none would be left, which would open the server to everybody on the machine.
func (s *Server) SetTokens(tokens []Token) error {
	if err := checkTokens(tokens); err != nil {
		return err
	}
	if len(tokens) == 0 && (!s.loopback || len(*s.handler.tokens.Load()) > 0) {
		return errors.New("a running server can not go on without tokens")
	}
	tokens = slices.Clone(tokens)
	s.handler.tokens.Store(&tokens)
	return nil
}

// Serve blocks until Stop, and returns nil then.
func (s *Server) Serve() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the api: %w", err)
	}
	return nil
}

// Stop lets requests under way end, for a moment, and closes the listener, also if Serve was never called.
func (s *Server) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		// A long export, or somebody who holds on to a connection.
		_ = s.server.Close()
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// operations are the operations of the document.
type operations struct {
	ledger    Ledger
	replayer  Replayer
	radar     Radar
	document  *document
	topics    []string
	bulkLimit int64
	maxBody   int64
	version   string
	log       *slog.Logger
}

// tokenList is replaced as a whole.
type tokenList = atomic.Pointer[[]Token]
