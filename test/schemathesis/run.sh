#!/usr/bin/env bash
# Runs schemathesis against the API of a dlt-replayer: requests made from its OpenAPI document, good and bad ones, and the
# answers held against it. The server has a ledger of its own in a temporary folder and no Kafka, which the API does without.
set -euo pipefail

version=4.32.5
examples=${EXAMPLES:-50}
port=${PORT:-19402}
token=rdr_schemathesis
binary=$(realpath "${1:?usage: run.sh bin/dlt-replayer}")

work=$(mktemp -d)
server=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "schemathesis==$version"

cat >"$work/topics.yaml" <<YAML
kafka: {brokers: ["127.0.0.1:1"]}
ledger: {dataDir: $work/data}
replayer:
  admin: {address: "127.0.0.1:0"}
  api:
    address: "127.0.0.1:$port"
    tokens: [{name: schemathesis, role: admin, sha256: $(printf %s "$token" | sha256sum | cut -d' ' -f1)}]
topics:
  - origin: orders
    tiers: [{delay: 10s}]
YAML
"$binary" serve --config "$work/topics.yaml" >"$work/server.log" 2>&1 &
server=$!

document=http://127.0.0.1:$port/api/v1/openapi.json
for _ in $(seq 100); do
	curl --silent --fail --output /dev/null "$document" && break
	kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
	sleep 0.1
done

# Not every request that the schemas allow makes sense: a filter that selects everything, or a cursor of another list, is refused.
cd "$work"
if ! "$work/venv/bin/schemathesis" run "$document" -H "Authorization: Bearer $token" --max-examples "$examples" \
	--checks all --exclude-checks positive_data_acceptance --suppress-health-check all; then
	tail -n 50 "$work/server.log" >&2
	exit 1
fi
