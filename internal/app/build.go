package app

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build names the running build.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"` // of the revision, in RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild completes what was set at link time, each "" if it was not, with what
// the toolchain noted in the binary.
func ReadBuild(version, commit, date string) Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return makeBuild(version, commit, date, info)
}

func makeBuild(version, commit, date string, info *debug.BuildInfo) Build {
	noted := map[string]string{}
	for _, s := range info.Settings {
		noted[s.Key] = s.Value
	}
	if info.Main.Version == "(devel)" {
		info.Main.Version = ""
	}
	return Build{
		Version:  cmp.Or(version, info.Main.Version, "dev"),
		Revision: cmp.Or(commit, noted["vcs.revision"], "unknown"),
		Date:     cmp.Or(date, noted["vcs.time"], "unknown"),
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// newRegistry makes a registry with the metrics of the process itself.
func newRegistry(b Build) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "redrive_build_info",
		Help:        "The running build; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "date": b.Date, "goversion": b.Go},
	})
	info.Set(1)
	registry.MustRegister(
		info,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}
