package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing wrong with the configuration and where it is. It never holds the value of a secret.
type Problem struct {
	// File is the file as it was named to Load, or "environment" or "flags".
	File string `json:"file"`
	// Line and Column count from 1, the column in characters. Both are 0 outside a file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Path is the key, as in topics[0].tiers[1].delay, or the name of the environment variable. It is empty for the whole file.
	Path string `json:"path,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Hint says what to do about it, where that is known; often the nearest valid name.
	Hint string `json:"hint,omitempty"`
}

// Error is the problem on one line: file:line:column: path: message (hint).
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column))
	}
	if p.Path != "" {
		b.WriteString(": " + p.Path)
	}
	b.WriteString(": " + p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Errors is every problem of one configuration: those of the file by position, then the environment, then the flags.
type Errors struct {
	// Problems is never empty.
	Problems []Problem
}

// Error is one line for each problem.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems one by one.
func (e *Errors) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// sorted makes an Errors of the problems of one load: by position, those of the file first.
func sorted(problems []Problem, file string) *Errors {
	rank := func(p Problem) int {
		return slices.Index([]string{file, inEnvironment, inFlags}, p.File)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return &Errors{Problems: slices.Compact(problems)}
}
