package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-redrive/redrive/internal/tracing"
)

// flushLimit is what a collector gets to take the last spans when the process stops.
const flushLimit = time.Second

// trace makes the tracer of the process, unless tracing is off.
func (o *Options) trace(ctx context.Context, service, clientID string, registry *prometheus.Registry) (err error) {
	if !o.Config.Tracing.Enabled {
		return nil
	}
	o.tracer, err = tracing.New(ctx, tracing.Options{
		Service:    service,
		Version:    o.Build.Version,
		ClientID:   clientID,
		Logger:     o.Logger,
		Registerer: registry,
	})
	return err
}

// flush is the step that undoes trace.
func (o *Options) flush(shutdown time.Duration) func() error {
	tracer := o.tracer
	return func() error {
		tracer.Stop(min(flushLimit, shutdown))
		return nil // What a collector did not take is no fault of the process.
	}
}
