package fault

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func quotaFaults() []Fault {
	return []Fault{{
		Name: "throttled", What: "a quota slows the forwarder down",
		play: throttled,
	}}
}

// throttled lets the forwarder write far less than is due. All comes late, nothing is lost, nothing twice.
func throttled(s *scene) {
	quota := func(op kadm.AlterClientQuotaOp) {
		entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &s.group}}
		answers, err := s.client.Admin().AlterClientQuotas(s.ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}})
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			s.failf("alter the quota: %w", err)
		}
	}
	p := s.start()
	quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 30_000})
	const size = 2000
	n := s.several(1000, 250)
	var records []*kgo.Record
	for range n {
		records = append(records, s.record(size))
	}
	s.hand(records...)
	p.see(issues("", "throttled"), atLeast(0.001, "redrive_throttle_seconds_total"), atLeast(0.001, "redrive_throttled_seconds_total"))
	if back := s.count(s.origin); back >= int64(n) {
		s.wrongf("all %d records are back already: the quota did not hold", back)
	}
	quota(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	s.recovers()
}
