package issue

// What the preflight finds. Some of it shows in a running forwarder as well, when it becomes true later.
const (
	// OriginMissing is an origin that does not exist.
	OriginMissing Code = "origin-missing"
	// TopicMissing is a topic of Redrive, or a return topic, that does not exist.
	TopicMissing Code = "topic-missing"
	// TopicUnreadable is a topic that the brokers do not describe.
	TopicUnreadable Code = "topic-unreadable"
	// ConfigUnreadable is a topic whose settings the brokers do not tell.
	ConfigUnreadable Code = "config-unreadable"
	// TwoRoles is a topic that the file uses for two things that exclude each other.
	TwoRoles Code = "two-roles"
	// FewerPartitions is a topic with fewer partitions than its origin.
	FewerPartitions Code = "fewer-partitions"
	// Compacted is a topic in which records wait and that is compacted.
	Compacted Code = "compacted"
	// RetentionBelowDelay is a tier that deletes its records before they are due.
	RetentionBelowDelay Code = "retention-below-delay"
	// TierRetentionShort is an inbox or tier that does not outlast a day without a forwarder.
	TierRetentionShort Code = "tier-retention-short"
	// DLTRetentionShort is a topic of dead letters that keeps them for less than a week.
	DLTRetentionShort Code = "dlt-retention-short"
	// RetentionBytes is a topic in which records wait and that is limited by size.
	RetentionBytes Code = "retention-bytes"
	// TimestampType is a topic of Redrive whose records are stamped by clients.
	TimestampType Code = "timestamp-type"
	// MessageBytes is a topic that takes only smaller records than its origin.
	MessageBytes Code = "message-bytes"
	// MinISR is a topic whose acknowledgements need too few replicas, or that has too few of them now.
	MinISR Code = "min-isr"
	// Replication is a topic with too few replicas.
	Replication Code = "replication"
	// UncleanElection is a topic whose leader may be a replica that lacks records.
	UncleanElection Code = "unclean-election"
	// OriginLogAppendTime is an origin that stamps what returns with the time of the return.
	OriginLogAppendTime Code = "origin-log-append-time"
	// SharedOrigin is an origin that several groups read and that records return to.
	SharedOrigin Code = "shared-origin"
	// ACLMissing is something that this principal needs and is not allowed.
	ACLMissing Code = "acl-missing"
	// ClockSkew is a clock of ours and one of a broker that do not agree.
	ClockSkew Code = "clock-skew"
	// PartitionerMismatch is an origin whose producers choose partitions by another rule than the setting.
	PartitionerMismatch Code = "partitioner-mismatch"
	// RetiredTopic is a topic that the file no longer names and that still holds records.
	RetiredTopic Code = "retired-topic"
	// TriggerMissing is a replay trigger topic that does not exist.
	TriggerMissing Code = "trigger-missing"
)

// What only a running forwarder finds.
const (
	// OffsetMissing is a partition that is not new and on which the group has no commit.
	OffsetMissing Code = "offset-missing"
	// OffsetOutOfRange is a commit that stands where the topic has no records.
	OffsetOutOfRange Code = "offset-out-of-range"
	// LostToRetention means that records were deleted before they were read.
	LostToRetention Code = "lost-to-retention"
	// TopicRecreated is a topic that was deleted and created again.
	TopicRecreated Code = "topic-recreated"
	// ProduceRefused is a topic that refuses what is written to it.
	ProduceRefused Code = "produce-refused"
	// PartitionFrozen is a partition of which nothing is sent for the moment.
	PartitionFrozen Code = "partition-frozen"
	// ProduceStalled is a copy that was sent and is not acknowledged.
	ProduceStalled Code = "produce-stalled"
	// FetchFailed is a partition that cannot be read.
	FetchFailed Code = "fetch-failed"
	// GroupUnstable is a group that cannot be joined.
	GroupUnstable Code = "group-unstable"
	// CommitRefused is a commit that was not accepted.
	CommitRefused Code = "commit-refused"
	// Throttled is a client that the brokers slow down by quota.
	Throttled Code = "throttled"
	// LatenessHigh is a topic whose records come back late.
	LatenessHigh Code = "lateness-high"
	// RateLimited is a topic whose records wait for its rateLimit.
	RateLimited Code = "rate-limited"
	// Paused is a topic whose returns are paused by the file.
	Paused Code = "paused"
	// LetterTooLarge is a record that even the dead letters refuse for its size.
	LetterTooLarge Code = "letter-too-large"
	// ReloadFailed is a file that was not accepted at the last reload.
	ReloadFailed Code = "reload-failed"
	// RestartRequired is a changed setting that only a restart applies.
	RestartRequired Code = "restart-required"
	// NoBroker means that no broker answers.
	NoBroker Code = "no-broker"
	// LoopGuard is a topic with records that were delivered too often over all replays.
	LoopGuard Code = "loop-guard"
)

// What only a running dlt-replayer finds. It shares fetch-failed, group-unstable, lost-to-retention, no-broker, reload-failed and
// restart-required with the forwarder.
const (
	// LedgerDown is a ledger whose database does not answer.
	LedgerDown Code = "ledger-down"
	// LedgerOlder is a ledger that is not migrated to this version.
	LedgerOlder Code = "ledger-older"
	// LedgerNewer is a ledger that a newer version has migrated.
	LedgerNewer Code = "ledger-newer"
	// IndexBehind is a topic of dead letters that is not indexed to its end.
	IndexBehind Code = "index-behind"
	// LettersExpired is a topic whose retention has removed the bytes of dead letters.
	LettersExpired Code = "letters-expired"
	// LettersExpiring is a topic whose retention is about to remove the bytes of dead letters.
	LettersExpiring Code = "letters-expiring"
	// LetterChanged is a record that is not the one that was indexed at its place.
	LetterChanged Code = "letter-changed"
	// JobStalled is a replay that does not go on.
	JobStalled Code = "job-stalled"
	// ReplayRefused is a topic that refuses copies of dead letters.
	ReplayRefused Code = "replay-refused"
	// TriggerRefused is a record on a replay trigger topic that asks for nothing there is.
	TriggerRefused Code = "trigger-refused"
)

// entries is the list. A remedy that is a command holds T for the topic, P for the partition, G for the group and
// $BROKERS; where the particulars are known, the finding names the command in full.
var entries = []Entry{
	{
		OriginMissing, SeverityError,
		"The origin does not exist, so its records have nowhere to return to and wait.",
		"Correct the name in topics.yaml, or have the owner of the topic create it: Redrive never does.",
	},
	{
		TopicMissing, SeverityError,
		"A topic of Redrive or a return topic does not exist, so records that should go there wait or are refused.",
		"Create it with forwarder topics apply.",
	},
	{
		TopicUnreadable, SeverityError,
		"The brokers do not describe the topic, so nothing about it could be checked.",
		"Look at the state of the brokers and of the topic, and check again.",
	},
	{
		ConfigUnreadable, SeverityWarning,
		"The brokers do not tell the settings of the topic, so compaction and retention, by which it may lose records, are not checked.",
		"Grant DESCRIBE_CONFIGS on the topic to this principal.",
	},
	{
		TwoRoles, SeverityError,
		"The file uses one topic for two things, so records would run in a circle or be held to the wrong rules.",
		"Give each use a topic of its own in topics.yaml.",
	},
	{
		FewerPartitions, SeverityError,
		"The topic has fewer partitions than its origin: in a topic of Redrive a slow partition holds up its neighbours, and in a return topic keys change place.",
		"Add partitions with forwarder topics apply, or to a return topic with kafka-topics.sh --alter.",
	},
	{
		Compacted, SeverityError,
		"The topic is compacted, which removes all but the last record of a key while they wait.",
		"Set cleanup.policy of the topic to delete.",
	},
	{
		RetentionBelowDelay, SeverityError,
		"The topic deletes records before they are due.",
		"Raise retention.ms with forwarder topics apply.",
	},
	{
		TierRetentionShort, SeverityWarning,
		"The topic keeps records for less than a day more than they wait, so they are lost if the forwarder stands still for longer.",
		"Raise retention.ms with forwarder topics apply.",
	},
	{
		DLTRetentionShort, SeverityWarning,
		"The topic keeps dead letters for less than a week, so they are gone before somebody has looked at them.",
		"Raise retention.ms with forwarder topics apply.",
	},
	{
		RetentionBytes, SeverityWarning,
		"The topic is limited by size, so in a burst of failures the oldest records are deleted however long they still have to wait.",
		"Set retention.bytes of the topic to -1.",
	},
	{
		TimestampType, SeverityWarning,
		"The records of the topic are stamped by clients, so one with an old timestamp is deleted early and one with a future timestamp is refused.",
		"Set message.timestamp.type of the topic to LogAppendTime.",
	},
	{
		MessageBytes, SeverityWarning,
		"The topic takes only smaller records than its origin with Redrive's headers, so a large one is refused there.",
		"Raise max.message.bytes with forwarder topics apply, or on a return topic or an origin with kafka-configs.sh.",
	},
	{
		MinISR, SeverityWarning,
		"The topic acknowledges records that too few replicas hold, so that they can be lost with one broker, or it has fewer replicas in sync than it needs, so that writes wait.",
		"Set min.insync.replicas to 2 with three replicas, and bring the missing broker back.",
	},
	{
		Replication, SeverityWarning,
		"The topic has one replica, or fewer than its origin, so fewer broken disks are enough to lose what waits there.",
		"Reassign its partitions to three replicas each.",
	},
	{
		UncleanElection, SeverityWarning,
		"A replica that lacks records may become leader of the topic, and what it lacks is lost although it was acknowledged.",
		"Set unclean.leader.election.enable of the topic to false.",
	},
	{
		OriginLogAppendTime, SeverityWarning,
		"The origin stamps each record with the time of its arrival, so one that returns looks new to whoever reads the timestamp.",
		"Have consumers take the time from redrive-original-timestamp, or set message.timestamp.type of the origin to CreateTime.",
	},
	{
		SharedOrigin, SeverityWarning,
		"Several consumer groups read the origin, and each of them gets every record that returns for one of them.",
		"Give each group a return topic of its own with returnTo, and have it read that beside the origin.",
	},
	{
		ACLMissing, SeverityError,
		"This principal lacks a permission that it needs, so records are not read, not sent on or not committed until it has it.",
		"Grant what is missing with kafka-acls.sh; nothing needs a restart.",
	},
	{
		ClockSkew, SeverityWarning,
		"The clocks of this machine and of a broker do not agree, so records come back early or late by the difference.",
		"Have both machines keep their clocks by NTP.",
	},
	{
		PartitionerMismatch, SeverityWarning,
		"The keys on the origin are not where the configured partitioner puts them, so a record whose partition number is not known, or no longer holds, returns to another partition than its key.",
		"Set partitioner of the entry in topics.yaml to the one that the keys fit.",
	},
	{
		RetiredTopic, SeverityInfo,
		"The file no longer names a topic that still holds records, and the forwarder drains it.",
		"Keep the topic until forwarder topics plan shows no records left in it, then delete it.",
	},
	{
		TriggerMissing, SeverityWarning,
		"The replay trigger topic does not exist, so nobody can ask for a replay by a record; the command line and the HTTP API do as ever.",
		"Create it with forwarder topics apply.",
	},
	{
		OffsetMissing, SeverityError,
		"The group has no commit on a partition that is not new, because it expired or the group's name has changed, so the partition is not read rather than read from a guess.",
		"Decide where to read from with forwarder offsets set.",
	},
	{
		OffsetOutOfRange, SeverityError,
		"The group's commit stands where the partition has no records, so the partition is not read rather than read from a guess.",
		"Decide where to read from with forwarder offsets set.",
	},
	{
		LostToRetention, SeverityError,
		"Kafka deleted records of the topic before they were read, and they are lost.",
		"Raise retention.ms and lift retention.bytes of the topic, and find out why nobody read it.",
	},
	{
		TopicRecreated, SeverityError,
		"The topic was deleted and created again while the forwarder ran, so its offsets name other records than before.",
		"Find out who deletes topics, and where a partition waits decide with forwarder offsets set.",
	},
	{
		ProduceRefused, SeverityError,
		"The brokers refuse what is written to the topic, so what goes there waits and is tried again.",
		"Look at the error in the detail and mend the topic; the forwarder goes on by itself.",
	},
	{
		PartitionFrozen, SeverityError,
		"A record of the partition cannot be sent where it must go, so the partition waits and is tried again while all others flow.",
		"Mend the topic that the detail names; the forwarder goes on by itself.",
	},
	{
		ProduceStalled, SeverityError,
		"A record was sent to the topic and is not acknowledged, and what is due behind it waits.",
		"Look at the leader of the partition that the detail names; the forwarder goes on by itself.",
	},
	{
		FetchFailed, SeverityError,
		"The partition cannot be read, so what waits in it is late.",
		"Look at the error in the detail and at the leader of the partition; reading goes on by itself.",
	},
	{
		GroupUnstable, SeverityError,
		"This instance cannot join its consumer group, or cannot stay in it, so it forwards or indexes nothing.",
		"Look at the error in the detail, at the permission on the group and at its coordinator.",
	},
	{
		CommitRefused, SeverityError,
		"The last commit was not accepted, so that a crash now repeats more records than usual, and nothing is sent once the lease has run out.",
		"Look at the error in the detail and at the coordinator of the group; the forwarder goes on by itself.",
	},
	{
		Throttled, SeverityWarning,
		"The brokers slow this client down by quota, so records come back late.",
		"Raise the quota of the forwarder's principal or client id.",
	},
	{
		LatenessHigh, SeverityWarning,
		"Records of the topic come back later than they are due.",
		"Look for another issue of the same topic first, then for slow brokers, then add instances.",
	},
	{
		RateLimited, SeverityInfo,
		"Records that are due wait because rateLimit of the entry lets only so many return in a second.",
		"Raise rateLimit in topics.yaml, or take it out; the file is read again by itself.",
	},
	{
		Paused, SeverityInfo,
		"Nothing returns to the origin because paused of the entry is set; records wait in their tiers.",
		"Take paused out of topics.yaml; the file is read again by itself.",
	},
	{
		LetterTooLarge, SeverityError,
		"Even the dead letters refuse a record for its size, so a pointer stands in its place there and its bytes are only where it was.",
		"Raise max.message.bytes of the dead letters before retention removes the record.",
	},
	{
		ReloadFailed, SeverityError,
		"The changed file was not accepted, so the process goes on with the last one that was.",
		"Correct what the log and forwarder validate --kafka name.",
	},
	{
		RestartRequired, SeverityWarning,
		"A setting was changed that only a restart applies, so the process goes on with the old value.",
		"Restart the process.",
	},
	{
		NoBroker, SeverityError,
		"No broker answers, so nothing moves.",
		"Look at the brokers, at the network, and at kafka.brokers, the TLS settings and the SASL settings.",
	},
	{
		LoopGuard, SeverityWarning,
		"Records were delivered and failed as often as maxDeliveries allows over all replays, and are dead letters now.",
		"Find out who replays them before their cause is mended; raise maxDeliveries only if the number is meant.",
	},
	{
		LedgerDown, SeverityError,
		"The database of the ledger does not answer, so nothing is indexed, listed or replayed until it does.",
		"Look at the database, at the network, and at ledger.url; the dlt-replayer goes on by itself.",
	},
	{
		LedgerOlder, SeverityError,
		"The ledger is not migrated to this version of the dlt-replayer, which waits for that.",
		"Run dlt-replayer migrate, or set ledger.migrate to true.",
	},
	{
		LedgerNewer, SeverityError,
		"A newer version has migrated the ledger, and this one would not understand what it reads there, so it waits.",
		"Run the newer version of the dlt-replayer everywhere.",
	},
	{
		IndexBehind, SeverityWarning,
		"Dead letters of the topic are not in the ledger yet, so that nobody finds or replays them.",
		"Look for another issue of the same topic or of the ledger first, then add instances.",
	},
	{
		LettersExpired, SeverityWarning,
		"Retention has removed the bytes of dead letters that nobody had replayed or discarded, so that they can not be replayed any more.",
		"Raise retention.ms of the topic, or set ledger.keepPayload to true, for the letters to come.",
	},
	{
		LettersExpiring, SeverityWarning,
		"Retention is about to remove the bytes of dead letters that nobody has replayed or discarded, and the ledger has no copy of them.",
		"Replay or discard them, or have dlt-replayer rescue copy their bytes into the ledger.",
	},
	{
		LetterChanged, SeverityError,
		"The record at the place of a dead letter is not the one that was indexed there, so that it is not replayed.",
		"Find out who deletes records or topics, and discard the letters that the detail names.",
	},
	{
		JobStalled, SeverityError,
		"A replay can not go on for now, and is tried again until it can.",
		"Look at the error in the detail; the job goes on by itself, and can be cancelled.",
	},
	{
		ReplayRefused, SeverityError,
		"The topic refuses copies of dead letters, so that these stay dead and the later ones of their keys are skipped.",
		"Look at the error in the detail, mend the topic and replay the failed letters.",
	},
	{
		TriggerRefused, SeverityWarning,
		"A record on the replay trigger topic asks for nothing that could be replayed, and was passed.",
		"Look at the audit trail for the reason, and correct who writes there.",
	},
}
