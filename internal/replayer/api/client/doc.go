// Package client answers how a program asks the HTTP API of the dlt-replayer: with the generated methods of
// ClientWithResponses, whose failures are errors of the type Error with the problem that the server told.
//
// A client is safe for concurrent use. Its methods block until the server has answered or the context ends.
package client

//go:generate go tool -modfile=../../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../openapi.yaml
