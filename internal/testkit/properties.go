package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// log4j is a .properties file because log4j needs one more jar for YAML. The broker is ready when KafkaRaftServer says
// so at level info; an open port comes too early.
const log4j = `appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %m (%c)%n
rootLogger=WARN, C
logger.r.name=kafka.server.KafkaRaftServer
logger.r.level=INFO
`

// readyLine is logged once the broker has joined the cluster and is allowed to lead partitions.
const readyLine = "Kafka Server started"

// serverProperties returns the text of broker n's server.properties. Of two settings of one name the last one counts,
// so extra comes last.
func serverProperties(n int, brokers []*broker, secure *Secure, extra map[string]string) string {
	me := brokers[n-1]
	voters := make([]string, len(brokers))
	for i, b := range brokers {
		voters[i] = fmt.Sprintf("%d@127.0.0.1:%d", b.node, b.controllerPort)
	}
	replicas, inSync := 1, 1
	if len(brokers) >= 3 {
		replicas, inSync = 3, 2
	}
	var s strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&s, "%s=%v\n", key, value) }

	set("process.roles", "broker,controller")
	set("node.id", n)
	set("controller.quorum.voters", strings.Join(voters, ","))
	set("controller.listener.names", "CONTROLLER")
	set("listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", me.port, me.controllerPort))
	set("advertised.listeners", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", me.port))
	set("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT")
	set("inter.broker.listener.name", "PLAINTEXT")
	set("log.dirs", me.dir+"/data")
	set("auto.create.topics.enable", false)
	set("num.partitions", 1)
	set("default.replication.factor", replicas)
	set("min.insync.replicas", inSync)

	// Internal topics: few partitions instead of 50, and a factor the cluster can hold.
	set("offsets.topic.num.partitions", 4)
	set("offsets.topic.replication.factor", replicas)
	for _, topic := range []string{"transaction.state.log", "share.coordinator.state.topic"} {
		set(topic+".num.partitions", 4)
		set(topic+".replication.factor", replicas)
		set(topic+".min.isr", inSync)
	}

	// A group does not wait for more members; a dead broker is noticed after 3 s instead of 9.
	set("group.initial.rebalance.delay.ms", 0)
	set("broker.heartbeat.interval.ms", 500)
	set("broker.session.timeout.ms", 3000)
	set("controlled.shutdown.max.retries", 1)

	// Tests may ask for short sessions. Where the brokers share out the partitions (KIP-848) the session is theirs: the shortest that
	// a busy machine keeps alive.
	set("group.min.session.timeout.ms", 1000)
	set("group.consumer.min.session.timeout.ms", 1000)
	set("group.consumer.min.heartbeat.interval.ms", 200)
	set("group.consumer.session.timeout.ms", 6000)
	set("group.consumer.heartbeat.interval.ms", 500)

	// Every broker is a rack of its own, and lets those read from it who name that rack.
	set("broker.rack", fmt.Sprintf("rack-%d", n))
	set("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector")

	// Retention shows within seconds instead of minutes.
	set("log.retention.check.interval.ms", 1000)
	set("log.initial.task.delay.ms", 1000)
	set("log.segment.delete.delay.ms", 1000)

	// Memory: the buffer of the log cleaner alone is 128 MiB by default.
	set("log.cleaner.dedupe.buffer.size", 4<<20)
	set("num.network.threads", 2)
	set("num.io.threads", 4)

	if secure != nil {
		secure.settings(me, set)
	}
	placeholders := strings.NewReplacer("{node}", strconv.Itoa(n), "{dir}", me.dir)
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		set(key, placeholders.Replace(extra[key]))
	}
	return s.String()
}
