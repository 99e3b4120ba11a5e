package api

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/goccy/go-yaml"
)

// basePath is where the API is.
const basePath = "/api/v1"

//go:embed openapi.yaml
var documentYAML []byte

// document is what the handler takes from openapi.yaml.
type document struct {
	json []byte
	// operations are by the pattern of their route.
	operations map[string]operation
}

// operation is what is to be enforced before one is served.
type operation struct {
	// public needs no caller.
	public bool
	role   Role
	// query are the names of its query parameters.
	query []string
}

// pathMethods are what a path of an OpenAPI document can have an operation for.
func pathMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
}

// readDocument reads an OpenAPI document. One that leaves open who may call an operation is an error.
func readDocument(text []byte) (*document, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	type parameter struct {
		Ref  string `json:"$ref"`
		Name string `json:"name"`
		In   string `json:"in"`
	}
	var content struct {
		Paths map[string]map[string]struct {
			Role       Role        `json:"x-redrive-role"`
			Security   *[]any      `json:"security"`
			Parameters []parameter `json:"parameters"`
		} `json:"paths"`
		Components struct {
			Parameters map[string]parameter `json:"parameters"`
		} `json:"components"`
	}
	if err := json.Unmarshal(asJSON, &content); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	d := &document{json: asJSON, operations: map[string]operation{}}
	for path, methods := range content.Paths {
		for _, method := range pathMethods() {
			found, ok := methods[strings.ToLower(method)]
			if !ok {
				continue
			}
			op := operation{role: found.Role, public: found.Security != nil && len(*found.Security) == 0}
			if !op.public && !op.role.Valid() {
				return nil, fmt.Errorf("the OpenAPI document gives no role for %s %s", method, path)
			}
			for _, p := range found.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = content.Components.Parameters[name]
				}
				if p.In == "query" {
					op.query = append(op.query, p.Name)
				}
			}
			d.operations[method+" "+basePath+path] = op
		}
	}
	return d, nil
}
