package charttest

import (
	"strings"
	"testing"
)

// sound are values that nothing is wrong with; each wrong case adds to them.
const sound = `
kafka: {brokers: [kafka:9092]}
topics: [{origin: orders}]
`

// wrong are values that the chart refuses, each with what the message must name: the key, in dots or, from the schema, as a path.
var wrong = []struct{ name, values, key string }{ //nolint:gochecknoglobals // A table that is only read.
	// What the schema refuses: keys that there are not, kinds and bounds.
	{"unknown key at the top", `forwarders: {replicas: 3}`, "'forwarders' not allowed"},
	{"unknown key of a workload", `forwarder: {replicaz: 3}`, "'replicaz' not allowed"},
	{"unknown key of the brokers", `kafka: {bootstrap: [kafka:9092]}`, "'bootstrap' not allowed"},
	{"unknown key of the ledger", `ledger: {uri: x}`, "'uri' not allowed"},
	{"unknown key of a probe", `forwarder: {livenessProbe: {httpGet: {path: /livez, port: metrics}, periodeSeconds: 3}}`, "'periodeSeconds' not allowed"},
	{"replicas in words", `forwarder: {replicas: two}`, "/forwarder/replicas"},
	{"negative replicas", `replayer: {replicas: -1}`, "/replayer/replicas"},
	{"unknown kind", `forwarder: {kind: DaemonSet}`, "/forwarder/kind"},
	{"unknown mechanism", `kafka: {sasl: {enabled: true, mechanism: GSSAPI}}`, "/kafka/sasl/mechanism"},
	{"unknown ledger", `ledger: {type: mysql}`, "/ledger/type"},
	{"unknown owner of the topics", `topicManagement: {mode: hook}`, "/topicManagement/mode"},
	{"unknown level", `logging: {level: verbose}`, "/logging/level"},
	{"scaling by something else", `forwarder: {autoscaling: {type: vpa}}`, "/forwarder/autoscaling/type"},
	{"scaling to zero", `forwarder: {autoscaling: {type: keda, minReplicas: 0, keda: {serverAddress: "http://prometheus:9090"}}}`, "/forwarder/autoscaling/minReplicas"},
	{"brokers as text", `kafka: {brokers: "kafka:9092"}`, "/kafka/brokers"},
	{"a broker without a port", `kafka: {brokers: [kafka]}`, "/kafka/brokers/0"},
	{"an origin without a name", `topics: [{tiers: [10s]}]`, "/topics/0"},

	// What contradicts itself.
	{"no brokers", `kafka: {brokers: []}`, "kafka.brokers"},
	{"no topics", `topics: []`, "topics:"},
	{"nothing installed", `{forwarder: {enabled: false}, replayer: {enabled: false}}`, "forwarder.enabled"},
	{"the grace period is the shutdown timeout", `forwarder: {terminationGracePeriodSeconds: 20}`, "forwarder.terminationGracePeriodSeconds"},
	{"the grace period is below the shutdown timeout", `replayer: {shutdownTimeout: 40s, terminationGracePeriodSeconds: 30}`, "replayer.terminationGracePeriodSeconds"},
	{"the grace period goes to a hook", `forwarder: {lifecycle: {preStop: {sleep: {seconds: 50}}}}`, "forwarder.terminationGracePeriodSeconds"},
	{"the shutdown timeout of the free part", `config: {forwarder: {shutdownTimeout: 2m, sessionTimeout: 5m}}`, "forwarder.terminationGracePeriodSeconds"},
	{"a shutdown as long as the session", `forwarder: {sessionTimeout: 20s}`, "forwarder.shutdownTimeout"},
	{"a session that is no duration", `forwarder: {sessionTimeout: soon}`, "forwarder/sessionTimeout"},
	{"one group for both", `{forwarder: {group: redrive}, replayer: {group: redrive}}`, "replayer.group"},
	{"an ingress without authentication", `replayer: {ingress: {enabled: true, hosts: [{host: redrive.example.com}]}}`, "replayer.ingress.enabled"},
	{"a route without authentication", `replayer: {httpRoute: {enabled: true, parentRefs: [{name: gateway}]}}`, "replayer.httpRoute.enabled"},
	{"a load balancer without authentication", `replayer: {service: {type: LoadBalancer}}`, "replayer.service.type"},
	{"an ingress without a replayer", `replayer: {enabled: false, ingress: {enabled: true, hosts: [{host: redrive.example.com}]}}`, "replayer.enabled"},
	{"a file for two replicas", `replayer: {replicas: 2}`, "replayer.replicas"},
	{"postgres without a secret", `ledger: {type: postgres}`, "ledger.existingSecret.name"},
	{"sqlite with a url", `ledger: {url: "postgres://redrive@db/redrive"}`, "ledger.type"},
	{"a ledger twice", `ledger: {type: postgres, url: "postgres://redrive@db/redrive", existingSecret: {name: ledger}}`, "ledger.url"},
	{"a password in plain text and in a secret", `kafka: {sasl: {enabled: true, username: redrive, password: x, existingSecret: {name: kafka-user}}}`, "kafka.sasl.password"},
	{"SCRAM without a password", `kafka: {sasl: {enabled: true, username: redrive}}`, "kafka.sasl.existingSecret.name"},
	{"SASL that is set and off", `kafka: {sasl: {username: redrive}}`, "kafka.sasl.enabled"},
	{"TLS that is set and off", `kafka: {tls: {caSecret: {name: kafka-ca}}}`, "kafka.tls.enabled"},
	{"keys of another mechanism", `kafka: {sasl: {enabled: true, mechanism: AWS_MSK_IAM, username: redrive}}`, "kafka.sasl: username"},
	{"two sources of tokens", `kafka: {sasl: {enabled: true, mechanism: OAUTHBEARER, oauth: {tokenEndpoint: "https://id.example.com", clientId: redrive, existingSecret: {name: oauth}, projectedToken: {enabled: true}}}}`, "kafka.sasl.oauth.projectedToken.enabled"},
	{"a secret in the free part", `config: {kafka: {sasl: {password: x}}}`, "config.kafka.sasl.password"},
	{"an address in the free part", `config: {forwarder: {admin: {address: ":1234"}}}`, "config.forwarder.admin.address"},
	{"an API for everybody in the free part", `config: {replayer: {api: {address: ":9402"}}}`, "config.replayer.api.address"},
	{"topics twice", `config: {topics: [{origin: payments}]}`, "config.topics"},
	{"topics beside a file of the user", `existingConfigMap: {name: mine}`, "topics: not used"},
	{"tokens twice", `replayer: {auth: {existingSecret: {name: tokens}, tokens: [{name: a, role: viewer, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}]}}`, "replayer.auth.tokens"},
	{"a token instead of its sum", `replayer: {auth: {tokens: [{name: a, role: viewer, sha256: rdt_abc}]}}`, "replayer.auth.tokens[0].sha256"},
	{"strimzi without its cluster", `topicManagement: {mode: strimzi, strimzi: {partitions: 12}}`, "topicManagement.strimzi.cluster"},
	{"strimzi without partitions", `topicManagement: {mode: strimzi, strimzi: {cluster: kafka}}`, "topicManagement.strimzi.partitions"},
	{"keda without prometheus", `forwarder: {autoscaling: {type: keda}}`, "forwarder.autoscaling.keda.serverAddress"},
	{"the most below the fewest", `forwarder: {autoscaling: {type: hpa, minReplicas: 5, maxReplicas: 2}}`, "forwarder.autoscaling.maxReplicas"},
	{"scraped twice", `metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}`, "metrics.podMonitor.enabled"},
	{"two budgets", `forwarder: {pdb: {minAvailable: 1, maxUnavailable: 2}}`, "forwarder.pdb.minAvailable"},
	{"an owner's secret without a job", `ledger: {type: postgres, existingSecret: {name: ledger}, migrations: {existingSecret: {name: owner}}}`, "ledger.migrations.existingSecret.name"},
}

// Wrong values are refused, with a message that names the key.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	c := load(t)
	if _, err := c.render(withValues(t, ""), clusterAPIs); err != nil {
		t.Fatalf("sound values are refused: %v", err)
	}
	for _, w := range wrong {
		t.Run(strings.ReplaceAll(w.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			_, err := c.render(withValues(t, w.values), clusterAPIs) // Not by the types: Helm alone must refuse it.
			if err == nil {
				t.Fatalf("%s: it is taken", w.values)
			}
			t.Log(err)
			// The path of a key in the schema and its name in dots are the same to whoever looks for it.
			if text := err.Error(); !strings.Contains(text, w.key) && !strings.Contains(text, strings.ReplaceAll(w.key, ".", "/")) && !strings.Contains(text, strings.ReplaceAll(w.key, "/", ".")) {
				t.Errorf("the message does not name %s", w.key)
			}
		})
	}
	t.Logf("%d wrong values", len(wrong))
}

// What is secret stands in no ConfigMap, no variable and no note, whatever way it came in.
func TestSecretsStayInSecrets(t *testing.T) {
	t.Parallel()
	const secret = "sesame-open"
	r, err := load(t).Render(withValues(t, `
kafka: {sasl: {enabled: true, username: redrive, password: `+secret+`}}
ledger: {type: postgres, url: "postgres://redrive:`+secret+`@db/redrive"}
`), clusterAPIs...)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, o := range r.Objects {
		if !strings.Contains(o.Text, secret) {
			continue
		}
		found++
		if KindOf(o.Typed) != "Secret" {
			t.Errorf("%s/%s (%s) shows a secret", KindOf(o.Typed), NameOf(o.Typed), o.Template)
		}
	}
	if found == 0 {
		t.Error("the secret is nowhere")
	}
	if strings.Contains(r.Notes, secret) {
		t.Error("the notes show a secret")
	}
}

// Values that are promised to be taken are: a grace period just above the shutdown timeout.
func TestSoundValuesAreTaken(t *testing.T) {
	t.Parallel()
	c := load(t)
	for name, values := range map[string]string{
		"grace period above the shutdown timeout": `forwarder: {terminationGracePeriodSeconds: 21}`,
		"exposure with authentication":            `replayer: {auth: {existingSecret: {name: tokens}}, ingress: {enabled: true, hosts: [{host: redrive.example.com}]}}`,
		"no forwarder":                            `forwarder: {enabled: false}`,
		"no replayer":                             `replayer: {enabled: false}`,
		"a budget by what must stay":              `forwarder: {pdb: {minAvailable: 1, maxUnavailable: ""}}`,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			if _, err := c.Render(withValues(t, values), clusterAPIs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// withValues are the sound values with others over them, key by key, as helm merges two files.
func withValues(t *testing.T, over string) map[string]any {
	t.Helper()
	low, err := Values([]byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	high, err := Values([]byte(over))
	if err != nil {
		t.Fatal(err)
	}
	return mergeInto(low, high)
}

func mergeInto(low, high map[string]any) map[string]any {
	for key, value := range high {
		above, ok := value.(map[string]any)
		below, both := low[key].(map[string]any)
		if ok && both {
			value = mergeInto(below, above)
		}
		low[key] = value
	}
	return low
}
