// Package api answers requests over HTTP about dead letters: it finds and shows them, plans and creates replay jobs, and
// discards and purges.
//
// The model: openapi.yaml is the contract and is served as it stands. Types, routes and the binding of parameters are
// generated from it, here and for the client in package client. What the document says and the generator does not enforce
// is enforced from the document itself: the role that an operation needs, and that a query has no parameter which the
// operation does not know, since a filter with a slip in it would select everything. Every answer that is not a success is
// a problem of RFC 9457 with a code that outlives releases.
//
// Promised: nobody is answered beyond loopback without a token; a token that is narrowed to topics never sees, counts or
// changes a letter of another; bytes of records leave as they are; no input makes the server fail with a status of 500.
// Refused: cross-origin requests, requests to another host name where there are no tokens, and everything that has an
// effect without a reason. What is done about letters is done by the ledger and by package replay, which also write the
// audit trail.
//
// A Server is safe for concurrent use. Serve blocks until Stop.
package api

//go:generate go tool -modfile=../../../tools/go.mod oapi-codegen -config oapi-codegen.yaml openapi.yaml
