package api

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/replayer/fetch"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

const (
	defaultShown = 64 << 10
	maxShown     = 1 << 20
	// exportPage is how many letters an export reads at a time.
	exportPage = 500
)

// GetPayload answers GET /letters/{letter}/payload.
func (o *operations) GetPayload(w http.ResponseWriter, r *http.Request, id ParamLetter, params GetPayloadParams) {
	shown := defaultShown
	if params.MaxBytes != nil {
		if shown = int(*params.MaxBytes); shown < 1 || shown > maxShown {
			o.fail(w, r, badParameter("maxBytes", "maxBytes must be between 1 and %d", maxShown))
			return
		}
	}
	form := value(params.As)
	if form != "" && !form.Valid() {
		o.fail(w, r, notOneOf("as", string(form), []string{string(FormJSON), string(FormText), string(FormHex)}))
		return
	}
	letter, record, err := o.record(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	payload := Payload{
		Letter: letter.ID, Key: viewOf(record.Key, form, shown), Value: viewOf(record.Value, form, shown),
		Headers: make([]HeaderView, 0, len(record.Headers)),
	}
	for _, h := range record.Headers {
		payload.Headers = append(payload.Headers, HeaderView{Name: strings.ToValidUTF8(h.Key, "\uFFFD"), Value: viewOf(h.Value, form, shown)})
	}
	o.answer(w, r, http.StatusOK, payload)
}

// record is the record of a letter that the caller may see.
func (o *operations) record(r *http.Request, id int64) (deadletter.Letter, deadletter.Payload, error) {
	letter, err := o.letter(r, id)
	if err != nil {
		return letter, deadletter.Payload{}, err
	}
	record, err := o.replayer.Payload(r.Context(), letter)
	return letter, record, ofReplayer(err)
}

// viewOf shows bytes in a form, or the next one that they allow. Of no form it is the one that reads best: a number or a
// quoted text alone is JSON as well, but is not worth a word about it.
func viewOf(b []byte, form Form, limit int) *View {
	if b == nil {
		return nil
	}
	view := &View{Size: int64(len(b)), Truncated: len(b) > limit}
	asJSON := form == FormJSON
	if form == "" {
		start := bytes.TrimLeft(b, " \t\r\n")
		asJSON = len(start) > 0 && (start[0] == '{' || start[0] == '[')
	}
	// A part of JSON is none.
	if asJSON && !view.Truncated && utf8.Valid(b) {
		var out bytes.Buffer
		if json.Indent(&out, b, "", "  ") == nil {
			view.Form, view.Content = FormJSON, out.String()
			return view
		}
	}
	shown := b[:min(len(b), limit)]
	if form != FormHex && utf8.Valid(b) {
		// The cut must not tear a character.
		for !utf8.Valid(shown) {
			shown = shown[:len(shown)-1]
		}
		view.Form, view.Content = FormText, string(shown)
		return view
	}
	view.Form, view.Content = FormHex, hex.EncodeToString(shown)
	return view
}

// GetValue answers GET /letters/{letter}/value.
func (o *operations) GetValue(w http.ResponseWriter, r *http.Request, id ParamLetter) {
	letter, record, err := o.record(r, id)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	if record.Value == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(record.Value)))
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="letter-%d.bin"`, letter.ID))
	_, _ = w.Write(record.Value) // A reader that is gone needs no answer.
}

// ExportLetters answers GET /export.
func (o *operations) ExportLetters(w http.ResponseWriter, r *http.Request, params ExportLettersParams) {
	filter, err := filterOf(params)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	page := deadletter.Page{Limit: exportPage}
	if page.Order, err = orderOf(params.Order); err != nil {
		o.fail(w, r, err)
		return
	}
	withPayload := value(params.Payload)
	if c := callerOf(r); withPayload && !c.may(RoleOperator) {
		o.fail(w, r, forbidden(c, RoleOperator, "an export with payload"))
		return
	}
	some := callerOf(r).narrow(&filter)
	out := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	control := http.NewResponseController(w)
	for begun := false; ; begun = true {
		var found deadletter.Letters
		if some {
			if found, err = o.ledger.Letters(r.Context(), filter, page); err != nil {
				o.tear(w, r, begun, err)
				return
			}
		}
		rendered := lettersOf(found.Letters)
		if withPayload {
			for i := range rendered {
				if err := o.addPayload(r, &rendered[i], found.Letters[i]); err != nil {
					o.tear(w, r, begun, err)
					return
				}
			}
		}
		if !begun {
			w.Header().Set("Content-Type", "application/jsonl")
		}
		// The whole may take long; a reader that takes nothing for this long is gone.
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // Not all writers have one.
		for i := range rendered {
			if err := lines.Encode(&rendered[i]); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		if err := out.Flush(); err != nil {
			panic(http.ErrAbortHandler)
		}
		_ = control.Flush() // What is not flushed now is flushed later.
		if page.After = found.Next; page.After == "" {
			return
		}
	}
}

// tear answers with a problem, or breaks the connection off where lines were sent already.
func (o *operations) tear(w http.ResponseWriter, r *http.Request, begun bool, err error) {
	if !begun {
		o.fail(w, r, err)
		return
	}
	o.log.WarnContext(r.Context(), "export broke off", "err", err)
	panic(http.ErrAbortHandler)
}

// addPayload adds the bytes of a letter, or why there are none. An error is none that belongs to the letter.
func (o *operations) addPayload(r *http.Request, out *Letter, letter deadletter.Letter) error {
	record, err := o.replayer.Payload(r.Context(), letter)
	if errors.Is(err, fetch.ErrGone) || errors.Is(err, replay.ErrChanged) {
		why := err.Error()
		out.PayloadError = &why
		return nil
	}
	if err != nil {
		return ofReplayer(err)
	}
	out.Payload = &Record{Value: bytesOf(record.Value), Headers: make([]RecordHeader, 0, len(record.Headers))}
	for _, h := range record.Headers {
		out.Payload.Headers = append(out.Payload.Headers, RecordHeader{Name: strings.ToValidUTF8(h.Key, "\uFFFD"), Value: bytesOf(h.Value)})
	}
	return nil
}
