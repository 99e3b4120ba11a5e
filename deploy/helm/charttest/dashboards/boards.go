package dashboards

const (
	day  = 86400
	hour = 3600
)

// Overview is of everything that Redrive does.
func Overview() *Dashboard {
	b := &builder{}
	b.row("Are retries on time?")
	b.stat(panel{
		title: "Overdue", about: "Records that are due and not forwarded. A few are so at any moment; many for long are not.", unit: count,
		alert: "redriveoverduegrowing", warn: 1000, bad: 10000, queries: []query{{`sum(redrive_overdue_records{namespace=~"$namespace"})`, ""}},
	})
	b.stat(panel{
		title: "First due for", about: "How long the record that is due for longest is so.", unit: seconds, alert: "redriveoverduegrowing", warn: 10, bad: 60, noValue: "nothing waits",
		queries: []query{{`clamp_min(time() - min(redrive_next_due_timestamp_seconds{namespace=~"$namespace"}), 0)`, ""}},
	})
	b.stat(panel{
		title: "Lateness, slowest hundredth", about: "Acknowledged by the origin minus due, over the last ten minutes.", unit: seconds, alert: "redrivelatenesshigh", warn: 1, bad: 10,
		queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(redrive_forward_lateness_seconds_bucket{namespace=~"$namespace"}[10m])))`, ""}},
	})
	b.stat(panel{
		title: "Waiting in memory", about: "Held by the forwarders, due or not. What a paused partition has not read yet is not counted.", unit: count,
		queries: []query{{`sum(redrive_held_records{namespace=~"$namespace"})`, ""}},
	})
	b.stat(panel{title: "Returned", unit: perS, queries: []query{{`sum(rate(redrive_records_forwarded_total{namespace=~"$namespace"}[$__rate_interval]))`, ""}}})
	b.stat(panel{
		title: "Forwarders", about: "Processes that poll.", unit: count, alert: "redrivenopollprogress", warn: 2, bad: 1, lowIsBad: true, noValue: "none",
		queries: []query{{`count(rate(redrive_polls_total{namespace=~"$namespace"}[5m]) > 0)`, ""}},
	})
	b.graph(panel{
		title: "Lateness by tier, slowest hundredth", unit: seconds, alert: "redrivelatenesshigh",
		queries: []query{{`histogram_quantile(0.99, sum by (source, le) (rate(redrive_forward_lateness_seconds_bucket{namespace=~"$namespace"}[$__rate_interval])))`, "{{source}}"}},
	})
	b.graph(panel{
		title: "Lateness as a share of the tier", about: "The same, divided by the delay of the tier.", unit: share, alert: "redrivelatenesshigh", warn: 0.05, bad: 0.1,
		queries: []query{{`histogram_quantile(0.99, sum by (source, le) (rate(redrive_forward_lateness_seconds_bucket{namespace=~"$namespace"}[$__rate_interval])))
/ on (source) max by (source) (label_replace(redrive_tier_delay_seconds{namespace=~"$namespace"}, "source", "$1", "topic", "(.+)"))`, "{{source}}"}},
	})
	b.graph(panel{
		title: "Overdue by topic", unit: count, alert: "redriveoverduegrowing",
		queries: []query{{`sum by (topic) (redrive_overdue_records{namespace=~"$namespace"})`, "{{topic}}"}},
	})
	b.graph(panel{title: "Returned by tier", unit: perS, queries: []query{{`sum by (source, target) (rate(redrive_records_forwarded_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{source}} to {{target}}"}}})
	b.graph(panel{title: "Sent to a tier", about: "From an inbox: deliveries that failed.", unit: perS, queries: []query{{`sum by (source, target) (rate(redrive_records_hopped_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{source}} to {{target}}"}}})
	b.graph(panel{title: "Waiting in memory by topic", unit: count, queries: []query{{`sum by (topic) (redrive_held_records{namespace=~"$namespace"})`, "{{topic}}"}}})

	b.row("What is dead?")
	b.stat(panel{
		title: "Dead letters", about: "Neither replayed nor discarded.", unit: count, alert: "redrivedeadletterold", warn: 1, bad: 1000,
		queries: []query{{`sum(max by (topic) (redrive_dead_letters{namespace=~"$namespace", state="dead"}))`, ""}},
	})
	b.stat(panel{
		title: "The oldest", about: "For how long nobody has decided about it.", unit: seconds, alert: "redrivedeadletterold", warn: hour, bad: day, noValue: "none",
		queries: []query{{`time() - min(redrive_dead_letter_oldest_timestamp_seconds{namespace=~"$namespace"})`, ""}},
	})
	b.stat(panel{
		title: "New error groups, one day", unit: count, alert: "redrivenewerrorgroup", warn: 1, bad: 10,
		queries: []query{{`sum(increase(redrive_dead_letter_groups_new_total{namespace=~"$namespace"}[1d]))`, ""}},
	})
	b.stat(panel{
		title: "Not indexed yet", about: "Records of the dead letters that the ledger does not have yet.", unit: count, warn: 1000, bad: 100000,
		queries: []query{{`sum(redrive_index_behind_records{namespace=~"$namespace"})`, ""}},
	})
	b.stat(panel{title: "Looping", about: "Dead because maxDeliveries was reached, one day.", unit: count, warn: 1, bad: 100, queries: []query{{`sum(increase(redrive_loop_guard_total{namespace=~"$namespace"}[1d]))`, ""}}})
	b.stat(panel{title: "Waits not granted, one day", unit: count, alert: "redriveheadersclamped", warn: 1, bad: 1000, queries: []query{{`sum(increase(redrive_records_clamped_total{namespace=~"$namespace"}[1d]))`, ""}}})
	b.graph(panel{
		title: "Deaths by source and reason", unit: perMin, alert: "redrivedeadletterratehigh", warn: 5, bad: 10,
		queries: []query{{`60 * sum by (source, reason) (rate(redrive_records_dead_lettered_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "{{source}} {{reason}}"}},
	})
	b.graph(panel{title: "Dead letters by topic", unit: count, alert: "redrivedeadletterold", queries: []query{{`max by (topic) (redrive_dead_letters{namespace=~"$namespace", state="dead"})`, "{{topic}}"}}})
	b.graph(panel{title: "Letters by state", unit: count, queries: []query{{`sum by (state) (max by (topic, state) (redrive_dead_letters{namespace=~"$namespace"}))`, "{{state}}"}}})

	b.row("What is being replayed?")
	b.stat(panel{title: "Jobs that run", unit: count, alert: "redrivereplayjobstalled", queries: []query{{`sum(redrive_replay_jobs_running{namespace=~"$namespace"})`, ""}}})
	b.stat(panel{title: "Jobs that do not go on", unit: count, alert: "redrivereplayjobstalled", warn: 1, bad: 1, noValue: "0", queries: []query{{`count(max by (topic) (redrive_issue{namespace=~"$namespace", code="job-stalled"}))`, ""}}})
	b.stat(panel{title: "Replayed", unit: perS, queries: []query{{`sum(rate(redrive_replayed_letters_total{namespace=~"$namespace"}[$__rate_interval]))`, ""}}})
	b.stat(panel{title: "Could not be replayed, one day", unit: count, warn: 1, bad: 100, queries: []query{{`sum(increase(redrive_replay_failures_total{namespace=~"$namespace"}[1d]))`, ""}}})
	b.stat(panel{title: "Succeeded, one day", about: "Replayed, passed by the group, and not back. Only where the entry has a group.", unit: count, queries: []query{{`sum(increase(redrive_letters_succeeded_total{namespace=~"$namespace"}[1d]))`, ""}}})
	b.stat(panel{title: "Taken over, one day", about: "Claims of replicas that gave no sign of life.", unit: count, warn: 1, bad: 1000, queries: []query{{`sum(increase(redrive_replay_takeovers_total{namespace=~"$namespace"}[1d]))`, ""}}})
	b.graph(panel{title: "Replayed by topic", unit: perS, queries: []query{
		{`sum by (topic) (rate(redrive_replayed_letters_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{topic}}"},
		{`sum by (topic) (rate(redrive_replay_failures_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "{{topic}} failed"},
	}})
	b.graph(panel{title: "Requests by result", unit: perMin, queries: []query{
		{`60 * sum by (result) (rate(redrive_replay_requests_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{result}}"},
		{`60 * sum by (topic, result) (rate(redrive_trigger_records_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "{{topic}} {{result}}"},
	}})
	b.graph(panel{title: "Copies under way", unit: count, queries: []query{{`sum(redrive_replay_in_flight_records{namespace=~"$namespace"})`, "copies"}}})

	b.row("What will expire?")
	b.stat(panel{
		title: "Letters about to lose their bytes", about: "Within replayer.expiry.within, and the ledger has no copy.", unit: count, alert: "redrivelettersexpiring", warn: 1, bad: 1,
		queries: []query{{`sum(max by (topic) (redrive_letters_expiring{namespace=~"$namespace"}))`, ""}},
	})
	b.stat(panel{
		title: "The first of them in", unit: seconds, alert: "redrivelettersexpiring", warn: 3 * day, bad: day, lowIsBad: true, noValue: "never",
		queries: []query{{`min(redrive_letter_expires_timestamp_seconds{namespace=~"$namespace"}) - time()`, ""}},
	})
	b.stat(panel{
		title: "Waiting records in", about: "When retention may take records that are overdue, or due only after that. There is none in normal work.", unit: seconds,
		alert: "redriveretentionnear", warn: day, bad: 6 * hour, lowIsBad: true, noValue: "none",
		queries: []query{{`min(redrive_waiting_expires_timestamp_seconds{namespace=~"$namespace"}) - time()`, ""}},
	})
	b.stat(panel{
		title: "Lost before they were read, one week", unit: count, alert: "redriverecordslost", warn: 1, bad: 1,
		queries: []query{{`sum(increase(redrive_records_lost_total{namespace=~"$namespace"}[7d])) + (sum(increase(redrive_letters_lost_total{namespace=~"$namespace"}[7d])) or vector(0))`, ""}},
	})
	b.stat(panel{title: "Expired undecided, one week", about: "Their bytes were gone before they were replayed or discarded.", unit: count, alert: "redrivelettersexpiring", warn: 1, bad: 1000, queries: []query{{`sum(increase(redrive_letters_expired_total{namespace=~"$namespace"}[7d]))`, ""}}})
	b.table(panel{title: "Time that is left, by topic", unit: seconds, alert: "redrivelettersexpiring", warn: 3 * day, bad: day, lowIsBad: true, queries: []query{
		{`sort(min by (topic) (redrive_letter_expires_timestamp_seconds{namespace=~"$namespace"}) - time())`, ""},
	}}, 12)
	b.graph(panel{title: "Lost and expired", unit: count, alert: "redriverecordslost", queries: []query{
		{`sum by (source) (increase(redrive_records_lost_total{namespace=~"$namespace"}[1h])) > 0`, "{{source}} lost"},
		{`sum by (topic) (increase(redrive_letters_lost_total{namespace=~"$namespace"}[1h])) > 0`, "{{topic}} lost"},
		{`sum by (topic) (increase(redrive_letters_expired_total{namespace=~"$namespace"}[1h])) > 0`, "{{topic}} expired"},
	}})

	b.row("What is broken?")
	b.table(panel{title: "Issues", about: "What each means and what mends it is in docs/issues.md.", unit: count, alert: "redriveissue", queries: []query{
		{`count by (code, topic) (redrive_issue{namespace=~"$namespace"})`, ""},
	}}, 12)
	b.stat(panel{title: "Ledger answers", unit: onOff, alert: "redriveledgererrors", warn: 1, bad: 1, lowIsBad: true, noValue: "no replayer", queries: []query{{`min(redrive_ledger_up{namespace=~"$namespace"})`, ""}}})
	b.stat(panel{title: "Configuration accepted", unit: onOff, alert: "redriveconfigrejected", warn: 1, bad: 1, lowIsBad: true, queries: []query{{`min(redrive_config_reload_successful{namespace=~"$namespace"})`, ""}}})
	b.stat(panel{title: "Lists of topics in force", about: "More than one: replicas do not agree.", unit: count, alert: "redriveconfigrejected", warn: 2, bad: 3, queries: []query{{`count(count_values("hash", redrive_config_hash{namespace=~"$namespace"}))`, ""}}})
	b.newLine()
	b.graph(panel{title: "Issues over time", unit: count, alert: "redriveissue", queries: []query{{`count by (code) (max by (code, topic) (redrive_issue{namespace=~"$namespace"}))`, "{{code}}"}}})
	b.graph(panel{title: "Partitions that do not move", about: "Frozen: a copy is refused or an offset is missing. Full: it holds all it may, which is no fault. Held back: paused or rateLimit wishes so.", unit: count, alert: "redriveissue", queries: []query{
		{`sum by (topic) (redrive_frozen_partitions{namespace=~"$namespace"}) > 0`, "{{topic}} frozen"},
		{`sum by (topic) (redrive_paused_partitions{namespace=~"$namespace"}) > 0`, "{{topic}} full"},
		{`sum by (topic) (redrive_held_back_partitions{namespace=~"$namespace"}) > 0`, "{{topic}} held back"},
	}})
	b.graph(panel{title: "Errors", unit: perMin, alert: "redriveissue", queries: []query{
		{`60 * sum by (target, code) (rate(redrive_produce_errors_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "write {{target}} {{code}}"},
		{`60 * sum(rate(redrive_commit_errors_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "commit"},
		{`60 * sum by (call) (rate(redrive_ledger_errors_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "ledger {{call}}"},
	}})
	b.processes()
	return b.board("redrive-overview", "Redrive / Overview", "Retries and dead letters of Kafka: are they on time, what is dead, what is replayed, what will expire, what is broken.")
}

// processes are what each of them takes.
func (b *builder) processes() {
	const ours = ` and on (job, instance) redrive_build_info{namespace=~"$namespace"}`
	b.row("Processes")
	b.graph(panel{title: "Memory", unit: memory, queries: []query{{`process_resident_memory_bytes{namespace=~"$namespace"}` + ours, "{{job}} {{instance}}"}}})
	b.graph(panel{title: "Processors", about: "Seconds of a processor, each second.", unit: count, queries: []query{{`rate(process_cpu_seconds_total{namespace=~"$namespace"}[$__rate_interval])` + ours, "{{job}} {{instance}}"}}})
	b.graph(panel{title: "Throttled by the brokers", about: "Share of the time that brokers asked a process to wait, for its quota.", unit: share, warn: 0.1, bad: 0.5, queries: []query{{`sum by (job, instance) (rate(redrive_throttled_seconds_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{job}} {{instance}}"}}})
	b.graph(panel{title: "Changes of the assignment", unit: perMin, queries: []query{
		{`60 * sum by (type) (rate(redrive_rebalances_total{namespace=~"$namespace"}[$__rate_interval]))`, "forwarder {{type}}"},
		{`60 * sum by (type) (rate(redrive_index_rebalances_total{namespace=~"$namespace"}[$__rate_interval]))`, "index {{type}}"},
	}})
	b.graph(panel{title: "Commits and calls of the ledger, slowest hundredth", unit: seconds, queries: []query{
		{`histogram_quantile(0.99, sum by (le) (rate(redrive_commit_duration_seconds_bucket{namespace=~"$namespace"}[$__rate_interval])))`, "commit"},
		{`histogram_quantile(0.99, sum by (le, call) (rate(redrive_ledger_call_duration_seconds_bucket{namespace=~"$namespace"}[$__rate_interval])))`, "{{call}}"},
	}})
	b.graph(panel{title: "API", unit: perMin, queries: []query{
		{`60 * sum by (route, code) (rate(redrive_http_requests_total{namespace=~"$namespace"}[$__rate_interval]))`, "{{route}} {{code}}"},
		{`60 * sum by (reason) (rate(redrive_http_authentication_refused_total{namespace=~"$namespace"}[$__rate_interval])) > 0`, "refused: {{reason}}"},
	}})
	b.table(panel{title: "Builds", unit: count, queries: []query{{`count by (job, version, revision) (redrive_build_info{namespace=~"$namespace"})`, ""}}}, width)
}

// Topic is of one origin with its tiers and dead letters.
func Topic() *Dashboard {
	choice := func(name, label, q string) Variable {
		return Variable{Name: name, Label: label, Type: "query", Query: q, Datasource: source, Refresh: 2, Sort: 1}
	}
	several := func(name, label, q string) Variable {
		v := choice(name, label, q)
		v.Multi, v.IncludeAll, v.Current = true, true, &current{"All", "$__all"}
		return v
	}
	b := &builder{}
	b.row("Are retries to $origin on time?")
	b.stat(panel{title: "Overdue", unit: count, alert: "redriveoverduegrowing", warn: 1000, bad: 10000, queries: []query{{`sum(redrive_overdue_records{namespace=~"$namespace", topic=~"$tier"})`, ""}}})
	b.stat(panel{
		title: "First due for", unit: seconds, alert: "redriveoverduegrowing", warn: 10, bad: 60, noValue: "nothing waits",
		queries: []query{{`clamp_min(time() - min(redrive_next_due_timestamp_seconds{namespace=~"$namespace", topic=~"$tier"}), 0)`, ""}},
	})
	b.stat(panel{
		title: "The next is due in", unit: seconds, noValue: "nothing waits",
		queries: []query{{`clamp_min(min(redrive_next_due_timestamp_seconds{namespace=~"$namespace", topic=~"$tier"}) - time(), 0)`, ""}},
	})
	b.stat(panel{title: "Waiting in memory", unit: count, queries: []query{{`sum(redrive_held_records{namespace=~"$namespace", topic=~"$tier"})`, ""}}})
	b.stat(panel{title: "Returned, one day", unit: count, queries: []query{{`sum(increase(redrive_records_forwarded_total{namespace=~"$namespace", target="$origin"}[1d]))`, ""}}})
	b.stat(panel{title: "Held back", about: "Partitions whose records wait because paused or rateLimit wishes so.", unit: count, warn: 1, bad: 1000000, queries: []query{{`sum(redrive_held_back_partitions{namespace=~"$namespace", topic=~"$tier"})`, ""}}})
	b.graph(panel{title: "Lateness", about: "Half, and the slowest hundredth, by tier.", unit: seconds, alert: "redrivelatenesshigh", queries: []query{
		{`histogram_quantile(0.5, sum by (source, le) (rate(redrive_forward_lateness_seconds_bucket{namespace=~"$namespace", source=~"$tier"}[$__rate_interval])))`, "{{source}} half"},
		{`histogram_quantile(0.99, sum by (source, le) (rate(redrive_forward_lateness_seconds_bucket{namespace=~"$namespace", source=~"$tier"}[$__rate_interval])))`, "{{source}} hundredth"},
	}})
	b.graph(panel{title: "Returned", unit: perS, queries: []query{{`sum by (source) (rate(redrive_records_forwarded_total{namespace=~"$namespace", target="$origin"}[$__rate_interval]))`, "{{source}}"}}})
	b.graph(panel{title: "Sent to a tier", about: "From the inbox: deliveries that failed.", unit: perS, queries: []query{{`sum by (source, target) (rate(redrive_records_hopped_total{namespace=~"$namespace", target=~"$tier"}[$__rate_interval]))`, "{{source}} to {{target}}"}}})
	b.graph(panel{title: "Overdue", unit: count, alert: "redriveoverduegrowing", queries: []query{{`sum by (topic) (redrive_overdue_records{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}}"}}})
	b.graph(panel{title: "Waiting in memory", unit: count, queries: []query{{`sum by (topic) (redrive_held_records{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}}"}}})
	b.graph(panel{title: "Memory of what waits", unit: memory, queries: []query{{`sum by (topic) (redrive_held_bytes{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}}"}}})
	b.graph(panel{title: "Under way", about: "Sent and not acknowledged, and the age of the oldest.", unit: seconds, warn: 1, bad: 10, queries: []query{
		{`max by (topic) (redrive_in_flight_age_seconds{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}} oldest"},
	}})
	b.graph(panel{title: "Records under way", unit: count, queries: []query{{`sum by (topic) (redrive_in_flight_records{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}}"}}})
	b.graph(panel{title: "Partitions", about: "Owned by some forwarder, and of them those that do not move.", unit: count, alert: "redriveissue", queries: []query{
		{`sum by (topic) (redrive_assigned_partitions{namespace=~"$namespace", topic=~"$tier|$inbox"})`, "{{topic}} owned"},
		{`sum by (topic) (redrive_frozen_partitions{namespace=~"$namespace", topic=~"$tier|$inbox"}) > 0`, "{{topic}} frozen"},
		{`sum by (topic) (redrive_paused_partitions{namespace=~"$namespace", topic=~"$tier|$inbox"}) > 0`, "{{topic}} full"},
	}})

	b.row("What is dead in $letters?")
	b.stat(panel{title: "Dead letters", unit: count, alert: "redrivedeadletterold", warn: 1, bad: 1000, queries: []query{{`sum(max by (topic) (redrive_dead_letters{namespace=~"$namespace", topic=~"$letters", state="dead"}))`, ""}}})
	b.stat(panel{title: "The oldest", unit: seconds, alert: "redrivedeadletterold", warn: hour, bad: day, noValue: "none", queries: []query{{`time() - min(redrive_dead_letter_oldest_timestamp_seconds{namespace=~"$namespace", topic=~"$letters"})`, ""}}})
	b.stat(panel{title: "New error groups, one day", unit: count, alert: "redrivenewerrorgroup", warn: 1, bad: 10, queries: []query{{`sum(increase(redrive_dead_letter_groups_new_total{namespace=~"$namespace", topic=~"$letters"}[1d]))`, ""}}})
	b.stat(panel{title: "About to lose their bytes", unit: count, alert: "redrivelettersexpiring", warn: 1, bad: 1, queries: []query{{`sum(max by (topic) (redrive_letters_expiring{namespace=~"$namespace", topic=~"$letters"}))`, ""}}})
	b.stat(panel{title: "The first of them in", unit: seconds, alert: "redrivelettersexpiring", warn: 3 * day, bad: day, lowIsBad: true, noValue: "never", queries: []query{{`min(redrive_letter_expires_timestamp_seconds{namespace=~"$namespace", topic=~"$letters"}) - time()`, ""}}})
	b.stat(panel{title: "Not indexed yet", unit: count, warn: 1000, bad: 100000, queries: []query{{`sum(redrive_index_behind_records{namespace=~"$namespace", topic=~"$letters"})`, ""}}})
	b.graph(panel{title: "Deaths by reason", unit: perMin, alert: "redrivedeadletterratehigh", warn: 5, bad: 10, queries: []query{{`60 * sum by (source, reason) (rate(redrive_records_dead_lettered_total{namespace=~"$namespace", source=~"$tier|$inbox"}[$__rate_interval]))`, "{{source}} {{reason}}"}}})
	b.graph(panel{title: "Letters by state", unit: count, queries: []query{{`max by (topic, state) (redrive_dead_letters{namespace=~"$namespace", topic=~"$letters"})`, "{{topic}} {{state}}"}}})
	b.graph(panel{title: "Replayed", unit: perS, queries: []query{
		{`sum by (topic) (rate(redrive_replayed_letters_total{namespace=~"$namespace", topic=~"$letters"}[$__rate_interval]))`, "{{topic}} replayed"},
		{`sum by (topic) (rate(redrive_letters_succeeded_total{namespace=~"$namespace", topic=~"$letters"}[$__rate_interval]))`, "{{topic}} succeeded"},
		{`sum by (topic) (rate(redrive_replay_failures_total{namespace=~"$namespace", topic=~"$letters"}[$__rate_interval]))`, "{{topic}} failed"},
	}})

	b.row("What is odd or broken?")
	b.table(panel{title: "Issues", about: "What each means and what mends it is in docs/issues.md.", unit: count, alert: "redriveissue", queries: []query{
		{`count by (code, topic) (redrive_issue{namespace=~"$namespace", topic=~"$origin|$inbox|$tier|$letters"})`, ""},
	}}, 8)
	b.graph(panel{title: "Odd headers", unit: perMin, alert: "redriveheadersclamped", queries: []query{
		{`60 * sum by (source) (rate(redrive_records_clamped_total{namespace=~"$namespace", source=~"$tier|$inbox"}[$__rate_interval]))`, "{{source}} wait not granted"},
		{`60 * sum by (source) (rate(redrive_records_inherited_total{namespace=~"$namespace", source=~"$tier|$inbox"}[$__rate_interval]))`, "{{source}} of another record"},
		{`60 * sum by (source) (rate(redrive_records_with_rejected_headers_total{namespace=~"$namespace", source=~"$tier|$inbox"}[$__rate_interval]))`, "{{source}} rejected"},
		{`60 * sum by (source) (rate(redrive_records_handed_over_twice_total{namespace=~"$namespace", source=~"$tier|$inbox"}[$__rate_interval]))`, "{{source}} handed over twice"},
	}})
	b.graph(panel{title: "Refused writes", unit: perMin, alert: "redriveissue", queries: []query{
		{`60 * sum by (target, code) (rate(redrive_produce_errors_total{namespace=~"$namespace", target=~"$origin|$tier|$letters"}[$__rate_interval])) > 0`, "{{target}} {{code}}"},
	}})
	return b.board("redrive-topic", "Redrive / Topic", "One origin: its inbox, its tiers and its dead letters.",
		choice("origin", "Origin", `label_values(redrive_records_forwarded_total{namespace=~"$namespace"}, target)`),
		several("tier", "Tiers", `label_values(redrive_records_forwarded_total{namespace=~"$namespace", target="$origin"}, source)`),
		several("inbox", "Inbox", `label_values(redrive_records_hopped_total{namespace=~"$namespace", target=~"$tier"}, source)`),
		several("letters", "Dead letters", `label_values(redrive_dead_letters{namespace=~"$namespace", topic=~"$origin.*"}, topic)`),
	)
}
