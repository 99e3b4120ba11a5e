package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Whatever is in the file, loading ends without a panic, in a configuration or in problems that all say where they are.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml", "../../topics.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := assemble(Source{Path: "topics.yaml"}, data)
		if err == nil {
			if len(l.config.Kafka.Brokers) == 0 || len(l.config.Topics) == 0 {
				t.Fatal("a configuration without brokers or topics is accepted")
			}
			for _, topic := range l.config.Topics {
				for _, name := range []string{topic.Inbox(), topic.DeadLetters(), topic.ReturnTopic(), topic.Tiers[0].Topic} {
					if c := checkTopicName(name); c.message != "" {
						t.Fatal(c.message)
					}
				}
			}
			return
		}
		var all *Errors
		if !errors.As(err, &all) || len(all.Problems) == 0 {
			t.Fatalf("%v is not an *Errors with problems", err)
		}
		for _, p := range all.Problems {
			if p.File != "topics.yaml" || p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Fatalf("no place or no message: %#v", p)
			}
		}
	})
}
