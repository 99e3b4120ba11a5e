package testkit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Figure is one outcome of a harness.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// WriteFigures writes figures to a file, one JSON object a line, and makes its folder.
func WriteFigures(file string, figures []Figure) error {
	var s strings.Builder
	enc := json.NewEncoder(&s)
	for _, f := range figures {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(s.String()), 0o644)
}
