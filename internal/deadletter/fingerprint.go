package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The masks that stand for what differs between two texts of one failure. No mask holds a digit, a quote or a slash, and "<" ends
// every token, so that a text which is normalised stays as it is.
const (
	maskUUID    = "<uuid>"
	maskNumber  = "<n>"    // numbers, and words with digits in them: ids, hex
	maskTime    = "<time>" // dates, times of day, and both
	maskAddress = "<addr>" // IPv4, IPv6, MAC, e-mail
	maskPath    = "<path>" // paths and URLs
	maskQuoted  = "<s>"    // what stands in quotes, with them
)

// printed is how much of a normalised text a fingerprint is made of. A text is cut at MaxErrorText bytes, and where the cut falls
// depends on the very values that are masked.
const printed = 512

// Fingerprint is the same for failures that are alike: of one error type, with texts that Normalize makes the same. It is 16
// hexadecimal digits, the first half of them of the SHA-256 of the error type, a zero byte, and the first 512 bytes of the
// normalised text. It outlives this code, since ledgers hold it.
func Fingerprint(errorType, text string) string {
	return fingerprint(make([]byte, 0, len(errorType)+1+2*printed), errorType, text)
}

// fingerprint uses the room behind b for the normalised text.
func fingerprint(b []byte, errorType, text string) string {
	b = append(append(b, errorType...), 0)
	from := len(b)
	b = appendNormalized(b, text, from+printed)
	if len(b) > from+printed {
		b = b[:from+printed]
	}
	sum := sha256.Sum256(b)
	var digits [16]byte
	hex.Encode(digits[:], sum[:8])
	return string(digits[:])
}

// Normalize masks in an error text what differs from one failure to the next: numbers, ids, UUIDs, hex, paths, URLs, quoted values,
// timestamps, addresses. Words stay, so that people can read it. Normalising twice changes nothing more. The time it takes is
// proportional to the length of the text, whatever the text is.
func Normalize(text string) string {
	return string(appendNormalized(nil, text, int(^uint(0)>>1)))
}

// appendNormalized ends soon after dst has limit bytes.
//
// How it reads: a quote that is closed on its line is one token. Else a run of characters that tokens are made of is looked at as a
// whole, for paths and e-mail addresses, and then word by word. What stands before a token is judged by what was written and not by
// what was read, and where a token ends only by characters that no mask begins with: so a second pass sees the same tokens.
func appendNormalized(dst []byte, text string, limit int) []byte {
	s := scanner{dst: dst, from: len(dst)}
	for i := 0; i < len(text) && len(s.dst) < limit; {
		c := text[i]
		if class[c]&quote != 0 && s.opens(c) {
			if end := s.closing(text, i); end > 0 {
				s.write(maskQuoted)
				i = end + 1
				continue
			}
		}
		if !inRun(text, i) {
			s.dst = append(s.dst, c)
			i++
			continue
		}
		end := i + 1
		for end < len(text) && inRun(text, end) {
			end++
		}
		if n := s.whole(text, i, end); n > 0 {
			i += n
			continue
		}
		s.words(text[i:end])
		i = end
	}
	return s.dst
}

type scanner struct {
	dst  []byte
	from int // what lies before is not of this text

	lineEnd int    // of the line that was looked at last
	open    [3]int // for each kind of quote, until where there is none that closes
}

// What a character can be.
const (
	digit uint8 = 1 << iota
	hexLetter
	letter // and what is not ASCII
	joiner // holds words together in a run
	quote
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		switch {
		case c >= '0' && c <= '9':
			t[c] = digit
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
			t[c] = letter | hexLetter
		case c >= 'g' && c <= 'z', c >= 'G' && c <= 'Z', c == '_', c >= 0x80:
			t[c] = letter
		case strings.IndexByte(`-.:/\@+~%$#`, byte(c)) >= 0:
			t[c] = joiner
		case c == '"', c == '\'', c == '`':
			t[c] = quote
		}
	}
	return t
}()

func isWord(c byte) bool  { return class[c]&(digit|letter) != 0 }
func isDigit(c byte) bool { return class[c]&digit != 0 }

// inRun tells whether a character belongs to a run. A comma does between digits.
func inRun(text string, i int) bool {
	c := text[i]
	if c == ',' {
		return i > 0 && isDigit(text[i-1]) && i+1 < len(text) && isDigit(text[i+1])
	}
	return class[c]&(digit|letter|joiner) != 0
}

func (s *scanner) write(mask string) { s.dst = append(s.dst, mask...) }

// last is what was written last; a space at the beginning.
func (s *scanner) last() byte {
	if len(s.dst) == s.from {
		return ' '
	}
	return s.dst[len(s.dst)-1]
}

// attached tells whether what comes next follows a word or a mask directly.
func (s *scanner) attached() bool {
	c := s.last()
	return isWord(c) || c == '>'
}

// opens tells whether a quote may begin something here. An apostrophe in a word does not.
func (s *scanner) opens(c byte) bool { return c != '\'' || !s.attached() }

// closing finds the quote that closes the one at i, on the same line, or 0. All calls for one text together read it once for each
// kind of quote.
func (s *scanner) closing(text string, i int) int {
	if s.lineEnd <= i {
		s.lineEnd = len(text)
		if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
			s.lineEnd = i + n
		}
	}
	none := &s.open[strings.IndexByte("\"'`", text[i])]
	if *none > i {
		return 0
	}
	n := strings.IndexByte(text[i+1:s.lineEnd], text[i])
	if n < 0 {
		*none = s.lineEnd
		return 0
	}
	return i + 1 + n
}

// whole masks the run at text[i:end] if it is one thing, and returns how much of the text that was.
func (s *scanner) whole(text string, i, end int) int {
	run := text[i:end]
	var mask string
	switch n := timeAt(run); {
	case n > 0 && !strings.ContainsAny(run[n:], `/\@`):
		return 0 // A date may have slashes.
	case strings.Contains(run, "://"):
		for end < len(text) && !endsURL(text[end]) {
			end++
		}
		mask = maskPath
	case isPath(run, s.attached()):
		mask = maskPath
	case isMail(run):
		mask = maskAddress
	default:
		return 0
	}
	// What a sentence goes on with is not part of it.
	for end > i && strings.IndexByte(".:,;!?", text[end-1]) >= 0 {
		end--
	}
	s.write(mask)
	return end - i
}

func endsURL(c byte) bool {
	return c <= ' ' || strings.IndexByte("\"'`<>()[]{}|", c) >= 0
}

// isPath tells whether a run is a path: two slashes of either kind, or one where a path begins.
func isPath(run string, attached bool) bool {
	slashes, word := 0, false
	for i := range len(run) {
		switch c := run[i]; {
		case c == '/' || c == '\\':
			slashes++
		case isWord(c):
			word = true
		}
	}
	switch {
	case !word || slashes == 0:
		return false
	case slashes > 1:
		return true
	case attached:
		return false
	}
	at := strings.IndexAny(run, `/\`)
	return at+1 < len(run) && isWord(run[at+1]) && (at == 0 || strings.Trim(run[:at], ".~") == "")
}

// isMail tells whether a run holds a word, an @ and a word with a dot in it.
func isMail(run string) bool {
	for i := 1; i < len(run); i++ {
		if run[i] != '@' || !isWord(run[i-1]) {
			continue
		}
		k := i + 1
		for k < len(run) && (isWord(run[k]) || run[k] == '-') {
			k++
		}
		if k > i+1 && k+1 < len(run) && run[k] == '.' && isWord(run[k+1]) {
			return true
		}
		i = k - 1
	}
	return false
}

// words writes a run word by word.
func (s *scanner) words(run string) {
	for i := 0; i < len(run); {
		c := run[i]
		if !isWord(c) {
			signs := (c == '-' || c == '+') && i+1 < len(run) && isDigit(run[i+1]) && !s.attached()
			if !signs {
				s.dst = append(s.dst, c)
			}
			i++
			continue
		}
		if n := timeAt(run[i:]); n > 0 {
			s.write(maskTime)
			i += n
			continue
		}
		if n := uuidAt(run[i:]); n > 0 {
			s.write(maskUUID)
			i += n
			continue
		}
		if n := addressAt(run[i:]); n > 0 {
			s.write(maskAddress)
			i += n
			continue
		}
		end := wordEnd(run, i)
		if isDigit(c) {
			// 1.5, 1,000 and 4.3.1 are one number.
			for end+1 < len(run) && (run[end] == '.' || run[end] == ',') && isDigit(run[end+1]) {
				end = wordEnd(run, end+1)
			}
		}
		s.word(run[i:end])
		i = end
	}
}

func wordEnd(run string, i int) int {
	for i < len(run) && isWord(run[i]) {
		i++
	}
	return i
}

// word writes one word, or a number with its dots.
func (s *scanner) word(w string) {
	first := strings.IndexAny(w, "0123456789")
	if first < 0 {
		if isHex(w) && (len(w) >= 8 || (len(w) >= 4 && s.last() == '@')) {
			s.write(maskNumber) // Of hex without a digit; Java writes it behind an @.
			return
		}
		s.dst = append(s.dst, w...)
		return
	}
	end := first
	for end < len(w) && (isDigit(w[end]) || w[end] == '.' || w[end] == ',') {
		end++
	}
	before, after := w[:first], w[end:]
	switch {
	case before == "" && isUnit(after):
		// The unit of a number says what the text is about.
		s.write(maskNumber)
		s.dst = append(s.dst, after...)
	case before != "" && !isHex(before) && (after == "" || isCamel(after)):
		// user42, Http2Exception: a name that a number is part of.
		s.dst = append(s.dst, before...)
		s.write(maskNumber)
		s.dst = append(s.dst, after...)
	default:
		s.write(maskNumber)
	}
}

func isHex(w string) bool {
	for i := range len(w) {
		if class[w[i]]&(digit|hexLetter) == 0 {
			return false
		}
	}
	return true
}

func isUnit(w string) bool {
	switch w {
	case "ns", "us", "ms", "s", "m", "h", "k", "K", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB":
		return true
	}
	return false
}

// isCamel tells whether w is a word like Exception, which follows the number in a name. It has a letter that hex has not, so
// that it stays what it is.
func isCamel(w string) bool {
	if len(w) < 3 || w[0] < 'A' || w[0] > 'Z' || isHex(w) {
		return false
	}
	for i := 1; i < len(w); i++ {
		if class[w[i]]&letter == 0 {
			return false
		}
	}
	return w[1] >= 'a' && w[1] <= 'z'
}

// matches tells whether s begins like pattern, in which 0 stands for a digit and f for a hexadecimal one.
func matches(s, pattern string) bool {
	if len(s) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		c := s[i]
		switch p := pattern[i]; p {
		case '0':
			if !isDigit(c) {
				return false
			}
		case 'f':
			if class[c]&(digit|hexLetter) == 0 {
				return false
			}
		default:
			if c != p {
				return false
			}
		}
	}
	return true
}

// ends tells whether a token of n bytes ends with a word.
func ends(s string, n int) bool { return n == len(s) || !isWord(s[n]) }

// timeAt is the length of the date, or time of day, or both, that s begins with; 0 for none.
func timeAt(s string) int {
	if len(s) == 0 || !isDigit(s[0]) {
		return 0
	}
	n := 0
	if matches(s, "0000-00-00") || matches(s, "0000/00/00") {
		if n = len("0000-00-00"); ends(s, n) {
			return n
		}
		if s[n] != 'T' && s[n] != 't' {
			return 0
		}
		n++
	}
	clock := s[n:]
	if !matches(clock, "00:00") {
		return 0
	}
	k := len("00:00")
	switch {
	case matches(clock[k:], ":00"):
		k += len(":00")
	case n == 0:
		return 0 // 12:30 alone is as well a place in a file.
	}
	if k+1 < len(clock) && (clock[k] == '.' || clock[k] == ',') && isDigit(clock[k+1]) {
		for k++; k < len(clock) && isDigit(clock[k]); k++ {
		}
	}
	switch rest := clock[k:]; {
	case rest != "" && (rest[0] == 'Z' || rest[0] == 'z'):
		k++
	case matches(rest, "+00:00"), matches(rest, "-00:00"):
		k += len("+00:00")
	case matches(rest, "+0000"), matches(rest, "-0000"):
		k += len("+0000")
	}
	if !ends(clock, k) {
		return 0
	}
	return n + k
}

const uuidPattern = "ffffffff-ffff-ffff-ffff-ffffffffffff"

func uuidAt(s string) int {
	if matches(s, uuidPattern) && ends(s, len(uuidPattern)) {
		return len(uuidPattern)
	}
	return 0
}

// maxAddress is longer than any address with its port.
const maxAddress = 48

// addressAt is the length of the IPv4, IPv6 or MAC address, with its port, that s begins with; 0 for none.
func addressAt(s string) int {
	n, dots, colons, digits := 0, 0, 0, 0
	for n < len(s) && n < maxAddress {
		switch c := s[n]; {
		case isDigit(c):
			digits++
		case class[c]&hexLetter != 0:
		case c == '.' && n+1 < len(s) && isDigit(s[n+1]):
			dots++
		case c == ':' && n+1 < len(s) && (class[s[n+1]]&(digit|hexLetter) != 0 || s[n+1] == ':'):
			colons++
		default:
			if isWord(c) {
				return 0
			}
			goto done
		}
		n++
	}
done:
	switch {
	case digits == 0 || !ends(s, n):
		return 0
	case dots == 3 && digits+dots+colons == n && colons <= 1, colons >= 3 && dots == 0, colons >= 2 && dots == 3:
		return n
	case colons == 2 && dots == 0 && strings.Contains(s[:n], "::"):
		return n
	}
	return 0
}
