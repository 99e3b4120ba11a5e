package receipts_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	_ "modernc.org/sqlite"

	"github.com/kafka-redrive/redrive/consumer/receipts"
)

// A consumer that books each order once, whatever comes twice.
func Example() {
	bookings, err := book(context.Background())
	fmt.Println(bookings, "booking,", err)
	// Output: 1 booking, <nil>
}

func book(ctx context.Context) (bookings int, err error) {
	db, err := sql.Open("sqlite", "file:orders?mode=memory&cache=shared&_txlock=immediate")
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, receipts.Schema+"CREATE TABLE bookings (name text)"); err != nil {
		return 0, err
	}
	once, err := receipts.New(receipts.Options{Dialect: receipts.SQLite, Consumer: "billing"})
	if err != nil {
		return 0, err
	}
	handle := func(r *kgo.Record) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // Nothing, after the commit.
		first, err := once.Once(ctx, receipts.SQL(tx), receipts.IDOf(receipts.Record{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
			Headers: receipts.HeadersOf(r.Headers, func(h kgo.RecordHeader) (string, []byte) { return h.Key, h.Value }),
		}))
		if err != nil {
			return err
		}
		if first {
			if _, err := tx.ExecContext(ctx, "INSERT INTO bookings (name) VALUES (?)", string(r.Key)); err != nil {
				return err
			}
		}
		return tx.Commit() // And only then the offset.
	}

	at := time.UnixMilli(1_767_582_000_000)
	delivery := &kgo.Record{Topic: "orders", Partition: 2, Offset: 4711, Timestamp: at, Key: []byte("order-17")}
	returned := &kgo.Record{Topic: "orders", Partition: 2, Offset: 4800, Timestamp: at.Add(time.Minute), Key: delivery.Key, Headers: []kgo.RecordHeader{
		{Key: "redrive-message-id", Value: []byte("orders/2/4711")},
		{Key: "redrive-original-timestamp", Value: []byte("2026-01-05T03:00:00.000Z")},
	}}
	for _, r := range []*kgo.Record{delivery, returned} {
		if err := handle(r); err != nil {
			return 0, err
		}
	}
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM bookings").Scan(&bookings)
	return bookings, err
}
