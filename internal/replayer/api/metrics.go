package api

import "github.com/prometheus/client_golang/prometheus"

// metrics are the counters of the API. Routes are those of the document, so that no request can make a new label value.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "redrive_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "redrive_http_request_duration_seconds", Help: "How long requests took, by route.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"route"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "redrive_http_authentication_refused_total", Help: "Requests refused for who asked: no token, one that is malformed, wrong or may not do it, another host or origin.",
		}, []string{"reason"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.refused} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
