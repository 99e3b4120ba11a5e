package replay

import (
	"context"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// Read is the record of a letter as its topic has it, or why there is none: fetch.ErrGone, or ErrChanged.
type Read struct {
	Payload deadletter.Payload
	Err     error
}

// Read reads the records of letters from their topics, in the order of the letters, and compares them with what was indexed. All of
// them are in memory at once: bound a call by the sizes of its letters. Broker trouble is waited for until ctx ends.
func (r *Replayer) Read(ctx context.Context, letters []deadletter.Letter) ([]Read, error) {
	places := make([]deadletter.Place, len(letters))
	for i := range letters {
		places[i] = letters[i].Place
	}
	results, err := r.fetcher.Fetch(ctx, places)
	if err != nil {
		return nil, err
	}
	read := make([]Read, len(letters))
	for i := range letters {
		read[i] = Read{Payload: results[i].Payload, Err: results[i].Err}
		if read[i].Err == nil {
			read[i].Err = r.verify(ctx, &letters[i], &read[i].Payload)
		}
	}
	return read, nil
}
