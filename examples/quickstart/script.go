package main

import "time"

// order is one record of the demo: how its handling goes, and where it must end.
type order struct {
	id    string
	key   string // of the record; "" is the id
	title string
	value string
	// try is the outcome of the nth delivery; the first is 1.
	try func(delivery int) error
	// deliveries and end are what must come out, before the consumer is repaired.
	// After that a dead letter is replayed, and succeeds at its first delivery.
	deliveries int
	end        string
}

// recordKey is the key of the order's record.
func (o order) recordKey() string {
	if o.key == "" {
		return o.id
	}
	return o.key
}

// The ends of an order. A dead letter ends by its reason.
const (
	succeeded = "succeeded"
	exhausted = "dead: exhausted"
	poison    = "dead: poison"
	// later is the end of a dead letter that was replayed.
	later = "succeeded when replayed"
)

// ladder are the delays of the tiers. A record is delivered once more after each.
func ladder() []time.Duration {
	return []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}
}

// customer has two orders that die: they share a key.
const customer = "customer-9"

const askedFor = 3 * time.Second

func script() []order {
	failsUntil := func(last int) func(int) error {
		return func(delivery int) error {
			if delivery <= last {
				return noAnswer{}
			}
			return nil
		}
	}
	unreadable := func(int) error { return &poisonError{"unknown field sku"} }
	return []order{
		{"order-1", "", "succeeds at once", `{"item":"tea","count":2}`, failsUntil(0), 1, succeeded},
		{"order-2", "", "fails once", `{"item":"cup","count":1}`, failsUntil(1), 2, succeeded},
		{"order-3", "", "fails twice", `{"item":"pot","count":1}`, failsUntil(2), 3, succeeded},
		{"order-4", customer, "fails always", `{"item":"samovar","count":1}`, failsUntil(1000), len(ladder()) + 1, exhausted},
		{"order-5", "", "can not be read", `{"sku":"T-17","count":1}`, unreadable, 1, poison},
		{"order-6", "", "asks for " + askedFor.String(), `{"item":"sugar","count":9}`, func(delivery int) error {
			if delivery == 1 {
				return &busyError{askedFor}
			}
			return nil
		}, 2, succeeded},
		{"order-7", customer, "can not be read either", `{"sku":"T-9","count":2}`, unreadable, 1, poison},
	}
}

// noAnswer is a timeout, as the errors of net are.
type noAnswer struct{}

func (noAnswer) Error() string { return "payment service did not answer" }
func (noAnswer) Timeout() bool { return true }
