package command

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAKeyIsReadInTheFormThatIsNamed(t *testing.T) {
	for _, test := range []struct {
		text, encoding string
		want           []byte
	}{
		{"abc", "text", []byte("abc")},
		{"", "text", []byte{}},
		{"", "base64", []byte{}},
		{"AP8=", "base64", []byte{0, 255}},
		{"00ff", "hex", []byte{0, 255}},
	} {
		got, err := DecodeKey(test.text, test.encoding)
		if err != nil || got == nil || !cmp.Equal(test.want, got) {
			t.Errorf("%q as %s: %v, %v", test.text, test.encoding, got, err)
		}
	}
	for _, encoding := range []string{"base64", "hex", "utf16"} {
		if _, err := DecodeKey("x!", encoding); err == nil {
			t.Errorf("%s is accepted", encoding)
		}
	}
}

func TestTextOfARecordDoesNotSteerATerminal(t *testing.T) {
	for text, want := range map[string]string{"a b": "a b", "\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "gr\u00fc\u00df": "gr\u00fc\u00df"} {
		if got := Printable(text); got != want {
			t.Errorf("%q is printed as %s", text, got)
		}
	}
}
