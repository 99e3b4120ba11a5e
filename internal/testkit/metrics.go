package testkit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Metric is the sum of the samples of a metric in the text of /metrics that have all these labels, each written as in
// name="value" or a part of that; 0 if there is none.
func Metric(text, name string, labels ...string) (float64, error) {
	sum := 0.0
	for line := range strings.SplitSeq(text, "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}
