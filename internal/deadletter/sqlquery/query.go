// Package sqlquery answers how a filter, an order and a cursor are said in SQL, for all ledgers alike.
//
// The model: a table letters has the columns that the conditions below name, and a table topics has a number and a name of
// each dead-letter topic. A [Query] gathers conditions and their arguments; a [Page] adds the order, the place in it where
// the page before ended, and one row more than was asked for, which tells whether anything follows. What differs between
// databases stands in a [Dialect].
//
// It promises that every value becomes an argument and none becomes text of the statement; that a cursor which is not of this
// filter and order is refused; and that pages neither repeat nor leave out a letter that was there all the time. It refuses to
// run anything and to know a schema beyond those columns.
//
// A Dialect is immutable and safe for concurrent use; a Query and a Page belong to one goroutine.
package sqlquery

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/kafka-redrive/redrive/internal/deadletter"
)

// Dialect is what differs between the databases.
type Dialect struct {
	// Placeholder stands for the n-th argument of a statement, from 1.
	Placeholder func(n int) string
	// AnyOf is the condition that a column has one of the values of an argument, which Strings or Numbers has made.
	AnyOf func(column, placeholder string) string
	// Strings and Numbers make one argument of many values.
	Strings func([]string) any
	Numbers func([]int64) any
	// Text makes an argument of a text, the way that texts are written to the table. Nil: as it is.
	Text func(string) string
	// TopicID is the column of the table topics that has Kafka's id of a topic.
	TopicID string
	// Time makes an argument that compares with the column dead_at.
	Time func(time.Time) any
	// Like is the operator that looks for a pattern in any case. It is followed by the escape character.
	Like string
}

// Query gathers the conditions of one statement and their arguments.
type Query struct {
	dialect    Dialect
	args       []any
	conditions []string
}

// New is a query with arguments that stand before those of its conditions.
func (d Dialect) New(args ...any) *Query { return &Query{dialect: d, args: args} }

// Args are all arguments so far, in the order of their placeholders.
func (q *Query) Args() []any { return q.args }

// Arg adds an argument and returns its placeholder.
func (q *Query) Arg(value any) string {
	q.args = append(q.args, value)
	return q.dialect.Placeholder(len(q.args))
}

// And adds a condition.
func (q *Query) And(condition string) { q.conditions = append(q.conditions, condition) }

// Where is all conditions so far, as what follows WHERE. With none it is one that holds.
func (q *Query) Where() string {
	if len(q.conditions) == 0 {
		return "1 = 1"
	}
	return strings.Join(q.conditions, " AND ")
}

// Filter adds the conditions of a filter.
func (q *Query) Filter(f deadletter.Filter) {
	if len(f.IDs) > 0 {
		q.numbers("id", f.IDs)
	}
	q.texts("message_id", f.MessageIDs)
	if f.HasKey {
		q.Key(f.Key)
	}
	if len(f.Topics) > 0 {
		topics := q.Arg(q.dialect.Strings(q.clean(f.Topics)))
		q.And("topic IN (SELECT no FROM topics WHERE " + q.dialect.AnyOf("name", topics) + ")")
	}
	q.texts("origin", f.Origins)
	q.texts("consumer_group", f.Groups)
	q.texts("reason", plain(f.Reasons))
	q.texts("error_type", f.ErrorTypes)
	q.texts("fingerprint", f.Fingerprints)
	q.texts("label", f.Labels)
	q.texts("state", plain(f.States))
	if f.ErrorText != "" {
		q.And("error_text " + q.dialect.Like + " " + q.Arg("%"+escapeLike(q.text(f.ErrorText))+"%") + ` ESCAPE '\'`)
	}
	if f.Job != "" {
		// The items have an index by job. A letter may have been claimed by another job since.
		job := q.Arg(q.text(f.Job))
		q.And("id IN (SELECT letter FROM items WHERE job = " + job + ") AND job = " + job)
	}
	if f.Partition != nil {
		q.number("record_partition", "=", int64(*f.Partition))
	}
	if f.Offset != nil {
		q.number("record_offset", "=", *f.Offset)
	}
	if !f.DeadFrom.IsZero() {
		q.And("dead_at >= " + q.Arg(q.dialect.Time(f.DeadFrom)))
	}
	if !f.DeadTo.IsZero() {
		q.And("dead_at < " + q.Arg(q.dialect.Time(f.DeadTo)))
	}
	if f.MinAttempt > 0 {
		q.number("attempt", ">=", int64(min(f.MinAttempt, math.MaxInt32)))
	}
	if f.MaxAttempt > 0 {
		q.number("attempt", "<=", int64(min(f.MaxAttempt, math.MaxInt32)))
	}
	if f.MinDeliveries > 0 {
		q.number("deliveries", ">=", int64(min(f.MinDeliveries, math.MaxInt32)))
	}
	if f.UpTo > 0 {
		q.number("id", "<=", f.UpTo)
	}
	if f.Unkept {
		q.And("NOT kept")
	}
	if len(f.Expiring) > 0 {
		q.expiring(f.Expiring)
	}
}

// fleeting is the condition of the partial index letters_expiring. A database uses the index only where the same words stand in
// the query.
const fleeting = "NOT kept AND state IN ('dead', 'claimed')"

func (q *Query) expiring(cuts []deadletter.Cut) {
	q.And(fleeting)
	older := make([]string, 0, len(cuts))
	for _, cut := range cuts {
		older = append(older, "topic = (SELECT no FROM topics WHERE "+q.dialect.TopicID+" = "+q.Arg(cut.TopicID[:])+" AND name = "+q.Arg(q.text(cut.Topic))+
			") AND dead_at < "+q.Arg(q.dialect.Time(cut.Before)))
	}
	if len(older) == 1 {
		q.And(older[0])
		return
	}
	q.And("(" + strings.Join(older, " OR ") + ")")
}

// Key adds the condition that the key is this one; nil is a missing key.
func (q *Query) Key(key []byte) {
	q.number("key_hash", "=", KeyHash(key))
	if key == nil {
		q.And("record_key IS NULL")
		return
	}
	// The key follows from its hash but for a chance in billions. A database that took both for independent would expect a few letters
	// where there are a million, and would sort them all instead of reading the index in order; it does not look into coalesce.
	q.And("coalesce(record_key = " + q.Arg(key) + ", false)")
}

// KeyHash is the value of the column key_hash: keys are too long to be indexed, and may share a hash.
func KeyHash(key []byte) int64 {
	if key == nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(key) // It never fails.
	return int64(binary.BigEndian.Uint64(h.Sum(nil)))
}

func (q *Query) number(column, operator string, value int64) {
	q.And(column + " " + operator + " " + q.Arg(value))
}

func (q *Query) numbers(column string, values []int64) {
	q.And(q.dialect.AnyOf(column, q.Arg(q.dialect.Numbers(values))))
}

// texts writes one value as an equality, which lets a database read an index in order.
func (q *Query) texts(column string, values []string) {
	switch len(values) {
	case 0:
	case 1:
		q.And(column + " = " + q.Arg(q.text(values[0])))
	default:
		q.And(q.dialect.AnyOf(column, q.Arg(q.dialect.Strings(q.clean(values)))))
	}
}

func (q *Query) text(s string) string {
	if q.dialect.Text == nil {
		return s
	}
	return q.dialect.Text(s)
}

func (q *Query) clean(values []string) []string {
	cleaned := make([]string, len(values))
	for i, value := range values {
		cleaned[i] = q.text(value)
	}
	return cleaned
}

func plain[S ~string](values []S) []string {
	plain := make([]string, len(values))
	for i, value := range values {
		plain[i] = string(value)
	}
	return plain
}

func escapeLike(s string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(s)
}
