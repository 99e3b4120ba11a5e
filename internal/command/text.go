package command

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"text/tabwriter"
	"unicode"
)

// Table aligns rows whose cells are separated by tabs.
func Table(rows []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if _, err := w.Write(rows); err != nil {
		return nil, err
	}
	err := w.Flush()
	return b.Bytes(), err
}

// Printable keeps what comes from a record from steering a terminal.
func Printable(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// DecodeKey reads the key that --key gives in the form that --key-encoding names:
// text, base64 or hex. It is never nil, which is no key.
func DecodeKey(text, encoding string) ([]byte, error) {
	var (
		key []byte
		err error
	)
	switch encoding {
	case "text":
		key = []byte(text)
	case "base64":
		key, err = base64.StdEncoding.DecodeString(text)
	case "hex":
		key, err = hex.DecodeString(text)
	default:
		return nil, fmt.Errorf("--key-encoding %s: want text, base64 or hex", encoding)
	}
	if err != nil {
		return nil, fmt.Errorf("--key is not %s: %w", encoding, err)
	}
	if key == nil {
		key = []byte{} // The empty key, which is not the same as none.
	}
	return key, nil
}
