package app

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheBuildIsWhatWasLinkedElseWhatTheToolchainNoted(t *testing.T) {
	noted := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	const when, other = "2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z"
	for name, test := range map[string]struct {
		version, commit, date string
		info                  *debug.BuildInfo
		want                  Build
	}{
		"linked": {
			"1.2.3", "abc", when, noted("v9.9.9", "vcs.revision", "def", "vcs.time", other),
			Build{Version: "1.2.3", Revision: "abc", Date: when},
		},
		"go install": {
			info: noted("v9.9.9"),
			want: Build{Version: "v9.9.9", Revision: "unknown", Date: "unknown"},
		},
		"go build in a clone": {
			info: noted("(devel)", "vcs.revision", "def", "vcs.time", other),
			want: Build{Version: "dev", Revision: "def", Date: other},
		},
		"nothing is known": {
			info: noted(""),
			want: Build{Version: "dev", Revision: "unknown", Date: "unknown"},
		},
	} {
		test.want.Go, test.want.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
		if diff := cmp.Diff(test.want, makeBuild(test.version, test.commit, test.date, test.info)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMetricsNameTheBuild(t *testing.T) {
	registry := newRegistry(Build{Version: "1.2.3", Revision: "abc", Date: "2026-01-31T12:00:00Z", Go: "go1.26.0"})
	want := `# HELP redrive_build_info The running build; the value is always 1.
# TYPE redrive_build_info gauge
redrive_build_info{date="2026-01-31T12:00:00Z",goversion="go1.26.0",revision="abc",version="1.2.3"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "redrive_build_info"); err != nil {
		t.Error(err)
	}
}
