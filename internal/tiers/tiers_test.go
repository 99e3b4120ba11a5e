package tiers

import (
	"strings"
	"testing"
	"time"
)

// ladder returns the default ladder: 10s, 1m, 10m.
func ladder() []Tier {
	return []Tier{
		{Name: "10s", Topic: "orders.retry.10s", Delay: 10 * time.Second},
		{Name: "1m", Topic: "orders.retry.1m", Delay: time.Minute},
		{Name: "10m", Topic: "orders.retry.10m", Delay: 10 * time.Minute},
	}
}

func options() Options {
	return Options{Origin: "orders", Inbox: "orders.retry", DeadLetters: "orders.dlt", Tiers: ladder()}
}

func policy(t testing.TB, edits ...func(*Options)) *Policy {
	t.Helper()
	o := options()
	for _, edit := range edits {
		edit(&o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaultsAreTheOriginOneDeliveryMoreThanTiersAndTheLongestDelay(t *testing.T) {
	t.Parallel()
	p := policy(t)
	if p.Origin() != "orders" || p.ReturnTo() != "orders" || p.Inbox() != "orders.retry" || p.DeadLetters() != "orders.dlt" ||
		p.Tiers() != 3 || p.Tier(1) != ladder()[1] || p.MaxAttempts() != 4 || p.MaxDelay() != 10*time.Minute ||
		p.MaxDeliveries() != 1000 {
		t.Errorf("%+v", p)
	}
	o := options()
	o.ReturnTo, o.MaxAttempts, o.MaxDelay, o.MaxDeliveries = "orders.billing", 9, time.Hour, 50
	if p, err := New(o); err != nil || p.ReturnTo() != "orders.billing" || p.MaxAttempts() != 9 || p.MaxDelay() != time.Hour || p.MaxDeliveries() != 50 {
		t.Errorf("%+v, %v", p, err)
	}
	// The guard never cuts a ladder that was asked for.
	o.MaxAttempts, o.MaxDeliveries = 2000, 0
	if p, err := New(o); err != nil || p.MaxDeliveries() != 2000 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestPolicyDoesNotChangeWithTheOptionsItCameFrom(t *testing.T) {
	t.Parallel()
	o := options()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Tiers[0].Topic = "elsewhere"
	if got := p.Topic(Step{To: ToTier}); got != "orders.retry.10s" {
		t.Errorf("tier topic %q", got)
	}
}

func TestOptionsThatContradictThemselvesAreRefused(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(*Options){
		`origin topic is required`:                                                                  func(o *Options) { o.Origin = "" },
		`inbox topic is required`:                                                                   func(o *Options) { o.Inbox = "" },
		`dead-letter topic is required`:                                                             func(o *Options) { o.DeadLetters = "" },
		`inbox topic "orders" is also the origin topic`:                                             func(o *Options) { o.Inbox = "orders" },
		`inbox topic "orders.retry" is also the return topic`:                                       func(o *Options) { o.ReturnTo = "orders.retry" },
		`tier "1m" topic "orders.dlt" is also the dead-letter topic`:                                func(o *Options) { o.Tiers[1].Topic = "orders.dlt" },
		`tier "1m" topic is required`:                                                               func(o *Options) { o.Tiers[1].Topic = "" },
		`tier 2 has no name`:                                                                        func(o *Options) { o.Tiers[1].Name = "" },
		`tier "10s" is there twice`:                                                                 func(o *Options) { o.Tiers[1].Name = "10s" },
		`tier "10s": delay 0s is not between 0 and 87600h0m0s`:                                      func(o *Options) { o.Tiers[0].Delay = 0 },
		`tier "10s": delay 876000h0m0s is not between`:                                              func(o *Options) { o.Tiers[0].Delay = 876_000 * time.Hour },
		`tier "10s": jitter -1s is not between`:                                                     func(o *Options) { o.Tiers[0].Jitter = -time.Second },
		`max attempts -1 is below 1`:                                                                func(o *Options) { o.MaxAttempts = -1 },
		`max attempts 2 needs a tier`:                                                               func(o *Options) { o.Tiers, o.MaxAttempts = nil, 2 },
		`max delay -1s is not between`:                                                              func(o *Options) { o.MaxDelay = -time.Second },
		`max attempts 1000000001 is above 1000000000`:                                               func(o *Options) { o.MaxAttempts = 1_000_000_001 },
		`max deliveries 3 is below max attempts 4`:                                                  func(o *Options) { o.MaxDeliveries = 3 },
		`max deliveries -1 is below max attempts 4`:                                                 func(o *Options) { o.MaxDeliveries = -1 },
		`max deliveries 1000000001 is above 1000000000`:                                             func(o *Options) { o.MaxDeliveries = 1_000_000_001 },
		`origin topic "__consumer_offsets" has a name that is kept`:                                 func(o *Options) { o.Origin = "__consumer_offsets" },
		`tier "1m" topic "__orders.1m" has a name that is kept`:                                     func(o *Options) { o.Tiers[1].Topic = "__orders.1m" },
		`policy for origin "orders": inbox topic is required` + "\n" + `max attempts -1 is below 1`: func(o *Options) { o.Inbox, o.MaxAttempts = "", -1 },
	} {
		o := options()
		edit(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestBestFitIsTheShortestTierThatCoversTheWait(t *testing.T) {
	t.Parallel()
	// Delays that do not rise and a jitter that reaches past the next tier.
	p := policy(t, func(o *Options) {
		o.Tiers = []Tier{
			{Name: "1m", Topic: "c", Delay: time.Minute},
			{Name: "10s", Topic: "a", Delay: 10 * time.Second, Jitter: 25 * time.Second},
			{Name: "30s", Topic: "b", Delay: 30 * time.Second},
			{Name: "60s", Topic: "d", Delay: time.Minute},
		}
	})
	for wait, want := range map[time.Duration]int{
		-time.Hour: 2, 0: 2, 30 * time.Second: 2, 31 * time.Second: 1, 35 * time.Second: 1, 36 * time.Second: 0, time.Minute: 0, time.Hour: 0,
	} {
		if got := p.bestFit(wait); got != want {
			t.Errorf("wait %v: tier %d, want %d", wait, got, want)
		}
	}
}
