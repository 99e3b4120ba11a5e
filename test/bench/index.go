package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// indexTurn is one run of the index and a bare COPY of the same rows after it.
type indexTurn struct {
	index indexing
	bare  float64 // rows a second
}

// index measures how fast dead letters get into Postgres. The ceiling is a COPY of the very rows that were written, from a file, into the
// same table with the same indexes, emptied before.
func (b *bench) index(ctx context.Context) error {
	l, err := b.newLetters(ctx, "bench-index", b.records)
	if err != nil {
		return err
	}
	defer l.freeAddress()
	if err := b.fillLetters(ctx, l); err != nil {
		return err
	}
	var ratios, rates, bare, cpu, peaks, growths []float64
	for i := range b.runs {
		t, err := b.indexTurn(ctx, l, fmt.Sprintf("index_%d", i))
		if err != nil {
			return err
		}
		rate := t.index.perSecond()
		b.say("index: %7.0f letters/s, COPY: %7.0f rows/s, %.2f us of CPU a letter, %.0f MiB", rate, t.bare,
			float64(t.index.cpu)/1e3/float64(l.records), peakOf(t.index.rss))
		ratios, rates, bare = append(ratios, rate/t.bare), append(rates, rate), append(bare, t.bare)
		cpu = append(cpu, float64(t.index.cpu)/1e3/float64(l.records))
		peaks, growths = append(peaks, peakOf(t.index.rss)), append(growths, growthOf(t.index.rss))
	}
	b.add("index_ratio", median(ratios), "ratio")
	b.add("index_per_s", median(rates), "letters/s")
	b.add("index_copy_per_s", median(bare), "rows/s")
	b.add("index_cpu_us_per_letter", median(cpu), "us")
	b.add("index_rss_mib", median(peaks), "MiB")
	b.add("index_rss_growth", median(growths), "ratio")
	return b.trim(ctx, l.topic())
}

func (b *bench) indexTurn(ctx context.Context, l *letters, name string) (t indexTurn, err error) {
	url, err := b.database(ctx, name, "")
	if err != nil {
		return t, err
	}
	defer func() {
		err = errors.Join(err, b.sql(context.WithoutCancel(ctx), b.postgres.URL(""), "DROP DATABASE "+name))
	}()
	if t.index, err = b.indexed(ctx, l, url); err != nil {
		return t, err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return t, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // All of it has been answered.
	t.bare, err = b.copyRows(ctx, conn, l)
	return t, err
}

// copyRows copies all rows out, empties the table, and copies them in again.
func (b *bench) copyRows(ctx context.Context, conn *pgx.Conn, l *letters) (perSecond float64, err error) {
	file, err := os.Create(filepath.Join(b.dir, "rows"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	out := bufio.NewWriterSize(file, mebibyte)
	tag, err := conn.PgConn().CopyTo(ctx, out, "COPY (SELECT * FROM letters ORDER BY id) TO STDOUT (FORMAT binary)")
	if err := errors.Join(err, out.Flush()); err != nil {
		return 0, fmt.Errorf("copy the rows out: %w", err)
	}
	if tag.RowsAffected() != l.records {
		return 0, fmt.Errorf("%d rows are in the ledger, of %d letters", tag.RowsAffected(), l.records)
	}
	for _, statement := range []string{"TRUNCATE letters", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return 0, fmt.Errorf("%s: %w", statement, err)
		}
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	began := time.Now()
	tag, err = conn.PgConn().CopyFrom(ctx, bufio.NewReaderSize(file, mebibyte), "COPY letters FROM STDIN (FORMAT binary)")
	if err != nil {
		return 0, fmt.Errorf("copy the rows in: %w", err)
	}
	return float64(tag.RowsAffected()) / time.Since(began).Seconds(), nil
}
