# What the shell of a scenario does for the reader. BROKERS, FORWARDER, REPLAYER and API are the addresses; children are told apart by their logs.
set -Eeu -o pipefail
AT=beginning WANT=0 children=()
trap 'echo "### failed at $AT: $BASH_COMMAND" >&2' ERR

# A program that is started in the foreground on the page runs in the background here, and is ready before the next line.
serving() { # address log program argument...
	local address=$1 log=$2 try
	shift 2
	command "$@" >>"$log" 2>&1 &
	children+=($!)
	for try in $(seq 300); do
		command curl -sf "http://$address/readyz" >/dev/null && return 0
		kill -0 "${children[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	echo "### $* is not ready" >&2
	tail -5 "$log" >&2
	return 1
}

# A letter, or a record, that was written a moment ago is looked for again.
patient() {
	local code
	while :; do
		code=0
		command "$@" || code=$?
		[ $code = 4 ] && [ $WANT != 4 ] && [ -n "$(find .produced -newermt '10 seconds ago' 2>/dev/null)" ] || return $code
		sleep 0.3
	done
}

forwarder() {
	case "${1:-}" in
	run) serving "$FORWARDER" forwarder.log forwarder "$@" ;;
	*) command forwarder "$@" ;;
	esac
}

# On a terminal the reader is asked, and says yes.
dlt-replayer() {
	local yes=()
	case "${1:-}" in
	serve)
		serving "$REPLAYER" replayer.log dlt-replayer "$@"
		return
		;;
	replay | discard | undiscard | purge | rescue)
		case " $* " in *" --yes "* | *" --count "* | *" --dry-run "* | *" --help "*) ;; *) yes=(--yes) ;; esac
		;;
	esac
	patient dlt-replayer "$@" "${yes[@]}"
}

kcat() {
	command kcat "$@"
	# A file, since a pipeline has a shell of its own.
	case " $* " in *" -P "*) touch .produced ;; esac
}

vi() { :; }

uuidgen() { cat /proc/sys/kernel/random/uuid; }

job() { command dlt-replayer jobs list --limit 1 -o jsonl | sed -n 's/.*"id":"\([^"]*\)".*/\1/p'; }

# The group with the fewest letters.
fingerprint() { command dlt-replayer groups -o jsonl | sed -n '$s/.*"value":"\([^"]*\)".*/\1/p'; }

# letters waits until so many are in the ledger.
letters() {
	local try
	for try in $(seq 150); do
		[ "$(command dlt-replayer list --limit 0 --no-headers 2>/dev/null | wc -l)" -ge "$1" ] && return 0
		sleep 0.2
	done
	return 1
}

finish() {
	local code=$? child
	trap - ERR
	set +e
	for child in "${children[@]}"; do
		kill -TERM "$child" 2>/dev/null
		wait "$child" || { echo "### a program ended with $?" >&2 && tail -n 5 forwarder.log replayer.log >&2 && code=1; }
	done
	exit $code
}
trap finish EXIT
