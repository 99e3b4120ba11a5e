package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownGrace is what requests under way get when the process stops.
const shutdownGrace = 500 * time.Millisecond

// admin is the HTTP server for probes and metrics.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listen takes the address. Nothing is served before serve.
func listen(ctx context.Context, address string, handler http.Handler) (*admin, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin address: %w", err)
	}
	return &admin{
		listener: listener,
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      30 * time.Second,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
		},
	}, nil
}

func (a *admin) address() string { return a.listener.Addr().String() }

// serve blocks until stop.
func (a *admin) serve() error {
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes and metrics: %w", err)
	}
	return nil
}

// stop lets requests under way end, for a moment, and closes the listener, also
// if serve was never called.
func (a *admin) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		// Somebody holds on to a connection; that is no fault of ours.
		_ = a.server.Close()
	}
	if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// onLoopback tells whether only this machine reaches the address.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// adminHandler serves the endpoints; those of the profiler, which show and cost
// much, only where they are asked for.
func adminHandler(probes prober, registry *prometheus.Registry, profiler bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, probes.live(r.Context()))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		respond(w, r, probes.ready(r.Context()))
	})
	// A scrape asks the loop. If that is stuck, scrapes must not pile up.
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry:            registry,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	}))
	index := "/livez\n/readyz?verbose\n/readyz?format=json\n/metrics\n"
	if profiler {
		index += "/debug/pprof/\n"
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // It serves the named profiles as well.
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})
	return mux
}

// respond writes a report in the form that was asked for: JSON, the lines of
// ?verbose, or one word. What is not well is always told in full.
func respond(w http.ResponseWriter, r *http.Request, rep report) {
	code := http.StatusOK
	if !rep.OK {
		code = http.StatusServiceUnavailable
	}
	query := r.URL.Query()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if query.Get("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(rep) // A reader that is gone needs no answer.
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if rep.OK && !query.Has("verbose") {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	_, _ = io.WriteString(w, rep.text())
}
