package forwarder

// A topic that is deleted and made again under its name is another topic to the
// brokers, and the clients refuse to go on with it until they are told to forget
// the first one. The records of the first one that wait here are the last copies
// there are. The order of events:
//
//  1. The sources of the first topic become orphans: they leave the assignment,
//     so that the second topic gets sources of its own, and commit no more.
//  2. The clients forget the first topic. The consumer joins anew for the second.
//  3. Orphans of a tier copy everything they hold to the tail of their tier, due
//     times unchanged; those of other topics wait and forward as before.
func (f *Forwarder) remade(topic string) {
	f.log.Warn("a topic was deleted and made again", "topic", topic)
	f.producer.PurgeTopicsFromProducing(topic)
	f.solo.PurgeTopicsFromProducing(topic)
	select {
	case <-f.joined:
	default:
		return // Nothing was read yet.
	}
	f.loop.do(func() {
		f.loop.faults.remade[topic] = f.loop.now
		f.loop.orphan(topic)
	})
	if f.routes[topic] == nil {
		return
	}
	f.consumer.PurgeTopicsFromConsuming(topic)
	f.consumer.AddConsumeTopics(topic)
}

// orphan takes the sources of a topic out of the assignment and keeps what they hold.
func (l *loop) orphan(topic string) {
	for _, s := range l.sources[topic] {
		held := s.order.Bytes()
		l.drop(s)
		if held == 0 {
			continue
		}
		l.heldSum += held
		s.dropped, s.closing, s.orphaned = false, false, true
		l.orphans[s] = true
		l.ready(s)
	}
}

// laid tells an orphan that holds nothing any more good-bye.
func (l *loop) laid(s *source) {
	if s.orphaned && s.order.Waiting()+s.order.InFlight() == 0 {
		delete(l.orphans, s)
		s.dropped = true
	}
}
