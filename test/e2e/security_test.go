package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-redrive/redrive/internal/testkit"
)

// The stories of this file start clusters of their own, and so do not run in parallel: a broker that starts wants a whole
// processor. The one that does mostly waits.

// handbook is where the rights are documented that the stories of this file run with.
const handbook = "../../docs/security.md"

// The headings of the handbook under which the rights of each purpose stand.
const (
	toRun         = "forwarder run, validate --kafka, topics plan"
	toApply       = "topics apply"
	toFind        = "find"
	toListOffsets = "offsets list"
	toSetOffsets  = "offsets set"
	toConsume     = "The application"
)

// right is one line of the handbook.
type right struct {
	user           string
	operations     []kmsg.ACLOperation
	topics, groups []string
}

// documentedRights reads the handbook: by heading, the rights that stand below it.
func documentedRights(t *testing.T) map[string][]right {
	t.Helper()
	page, err := os.ReadFile(handbook)
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string][]right{}
	heading := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			heading = title
		}
		if arguments, ok := strings.CutPrefix(line, "$acls "); ok {
			rights[heading] = append(rights[heading], parseRight(t, arguments))
		}
	}
	for _, heading := range []string{toRun, toApply, toFind, toListOffsets, toSetOffsets, toConsume} {
		if len(rights[heading]) == 0 {
			t.Fatalf("%s documents no rights under %q", handbook, heading)
		}
	}
	return rights
}

// parseRight reads the arguments of kafka-acls.sh.
func parseRight(t *testing.T, arguments string) right {
	t.Helper()
	var r right
	words := strings.Fields(arguments)
	if len(words)%2 != 0 {
		t.Fatalf("%s: %q: want options with one value each", handbook, arguments)
	}
	for pair := range slices.Chunk(words, 2) {
		switch value := pair[1]; pair[0] {
		case "--allow-principal":
			user, ok := strings.CutPrefix(value, "User:")
			if !ok || r.user != "" {
				t.Fatalf("%s: %q: want one principal, User:name", handbook, arguments)
			}
			r.user = user
		case "--operation":
			operation, err := kmsg.ParseACLOperation(value)
			if err != nil {
				t.Fatalf("%s: %q: %v", handbook, arguments, err)
			}
			r.operations = append(r.operations, operation)
		case "--topic":
			r.topics = append(r.topics, value)
		case "--group":
			r.groups = append(r.groups, value)
		default:
			t.Fatalf("%s: %q: what is %s?", handbook, arguments, pair[0])
		}
	}
	if r.user == "" || len(r.operations) == 0 || len(r.topics)+len(r.groups) == 0 {
		t.Fatalf("%s: %q: a right has a user, an operation and a resource", handbook, arguments)
	}
	return r
}

// rule is one access control rule: one operation on one resource.
type rule struct {
	user      string
	operation kmsg.ACLOperation
	topic     string // or group
	group     string
}

// String names a rule in the log of a test.
func (r rule) String() string {
	return fmt.Sprintf("%s %v on %s%s", r.user, r.operation, r.topic, r.group)
}

func (r rule) builder() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + r.user).AllowHosts("*").Operations(r.operation).ResourcePatternType(kadm.ACLPatternLiteral)
	if r.topic != "" {
		return b.Topics(r.topic)
	}
	return b.Groups(r.group)
}

// rulesOf takes rights apart. With a user it is given to that one.
func rulesOf(rights []right, user string) []rule {
	var rules []rule
	for _, r := range rights {
		if user != "" {
			r.user = user
		}
		for _, operation := range r.operations {
			for _, topic := range r.topics {
				rules = append(rules, rule{r.user, operation, topic, ""})
			}
			for _, group := range r.groups {
				rules = append(rules, rule{r.user, operation, "", group})
			}
		}
	}
	return rules
}

// secured is a story on a cluster of its own, behind a listener where nobody may do what no rule allows.
type secured struct {
	*story
	authority *testkit.Authority
	passwords map[string]string // by user
	said      *record
}

// record is what the processes of a story have said, to be searched for secrets.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) add(texts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range texts {
		r.text.WriteString(text + "\n")
	}
}

// secure starts a cluster for the story of the handbook: the origin orders and the ladder that it has by default. The ladder is
// quick here, and longer waits are allowed.
func secure(t *testing.T, how testkit.Secure, users ...string) *secured {
	t.Helper()
	dir := t.TempDir()
	authority, err := testkit.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	passwords := map[string]string{}
	for _, user := range users {
		passwords[user] = "pw-" + strings.ToLower(rand.Text()[:12])
	}
	how.Authority, how.Users = authority, passwords
	k := testkit.OwnKafka(t, testkit.KafkaOptions{Secure: &how})
	s := &secured{
		story: &story{
			t: t, kafka: k, client: k.Client(t), dir: dir, origin: "orders", group: "redrive-forwarder", partitions: 2, told: time.Now(),
			tiers: []string{"orders.retry.10s", "orders.retry.1m", "orders.retry.10m"},
		},
		authority: authority,
		passwords: passwords,
		said:      &record{},
	}
	s.client.CreateTopic(s.origin, s.partitions, nil)
	t.Cleanup(s.checkSecrets)
	return s
}

// checkSecrets fails the test if a password was said anywhere.
func (s *secured) checkSecrets() {
	for user, password := range s.passwords {
		if strings.Contains(s.said.text.String(), password) {
			s.t.Errorf("the password of %s was said by a process", user)
		}
	}
}

// configure writes a topics.yaml whose kafka section is this, and returns its path.
func (s *secured) configure(name, kafka string) string {
	s.t.Helper()
	return s.configFile(name+".yaml", fmt.Sprintf(`kafka: {%s}
forwarder: {group: %s}
logging: {format: text, level: debug}
topics:
  - origin: %s
    maxDelay: 1h
    tiers: [{name: 10s, delay: 500ms}, {name: 1m, delay: 600ms}, {name: 10m, delay: 700ms}]
`, kafka, s.group, s.origin))
}

// over is a kafka section over the secured listener; more are its other keys.
func (s *secured) over(more string) string {
	return fmt.Sprintf("brokers: [%s], tls: {enabled: true, caFilepath: %s}%s", strings.Join(s.kafka.SecureBrokers(), ", "), s.authority.CAFile(), more)
}

// login are the keys of a login with a password.
func login(mechanism, user, password string) string {
	return fmt.Sprintf(", sasl: {enabled: true, mechanism: %s, username: %s, password: %s}", mechanism, user, password)
}

// as is the configuration of a user who logs in with the right password.
func (s *secured) as(user string) string {
	s.t.Helper()
	return s.configure(user, s.over(login("SCRAM-SHA-512", user, s.passwords[user])))
}

// tell runs a command, remembers what it says, and fails the test if it ends with another exit code.
func (s *secured) tell(t *testing.T, code int, arguments ...string) result {
	t.Helper()
	r := s.command(arguments...)
	s.said.add(r.stdout, r.stderr)
	if r.code != code {
		t.Fatalf("forwarder %q: exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", arguments, r.code, code, r.stdout, r.stderr)
	}
	return r
}

// grant makes the rules and returns when the broker goes by them.
func (s *secured) grant(rules ...rule) {
	s.t.Helper()
	for _, r := range rules {
		results, err := s.client.Admin().CreateACLs(s.t.Context(), r.builder())
		if err != nil {
			s.t.Fatalf("grant %v: %v", r, err)
		}
		for _, result := range results {
			if result.Err != nil {
				s.t.Fatalf("grant %v: %v", r, result.Err)
			}
		}
	}
	s.awaitRules(true, rules...)
}

// revoke takes rules away and returns when the broker goes by that.
func (s *secured) revoke(rules ...rule) {
	s.t.Helper()
	for _, r := range rules {
		if _, err := s.client.Admin().DeleteACLs(s.t.Context(), r.builder()); err != nil {
			s.t.Fatalf("revoke %v: %v", r, err)
		}
	}
	s.awaitRules(false, rules...)
}

func (s *secured) awaitRules(there bool, rules ...rule) {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, "the rules to be in force", func(ctx context.Context) error {
		for _, r := range rules {
			described, err := s.client.Admin().DescribeACLs(ctx, r.builder())
			if err != nil {
				return err
			}
			found := slices.ContainsFunc(described, func(d kadm.DescribeACLsResult) bool { return len(d.Described) > 0 })
			if found != there {
				return fmt.Errorf("%v is there: %v", r, found)
			}
		}
		return nil
	})
}

// application consumes the origin through the secured listener, as the user of the handbook, and hands over what handle returns.
func (s *secured) application(user string, handle func(*kgo.Record) *kgo.Record) {
	s.t.Helper()
	ca, err := os.ReadFile(s.authority.CAFile())
	if err != nil {
		s.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.kafka.SecureBrokers()...),
		kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}),
		kgo.SASL(scram.Auth{User: user, Pass: s.passwords[user]}.AsSha512Mechanism()),
		kgo.ConsumerGroup(user), kgo.ConsumeTopics(s.origin), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					s.t.Errorf("the application: %v", err)
				}
			})
			fetches.EachRecord(func(r *kgo.Record) {
				if failed := handle(r); failed != nil {
					failed.Topic = s.inbox()
					if err := client.ProduceSync(ctx, failed).FirstErr(); err != nil && ctx.Err() == nil {
						s.t.Errorf("the application hands over: %v", err)
					}
				}
			})
			if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
				s.t.Errorf("the application commits: %v", err)
			}
		}
	})
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
		client.Close()
	})
}

// TestEverythingRunsWithTheDocumentedRightsAndNothingMore over SASL_SSL: the topics are made, a record is handed over, comes
// back, and another one ends in the dead letters; the commands look in; and of the forwarder's rights none could be missing.
func TestEverythingRunsWithTheDocumentedRightsAndNothingMore(t *testing.T) {
	rights := documentedRights(t)
	var users []string
	for _, lines := range rights {
		for _, r := range lines {
			if !slices.Contains(users, r.user) {
				users = append(users, r.user)
			}
		}
	}
	s := secure(t, testkit.Secure{}, users...)
	only := func(purpose string) (user string) {
		s.grant(rulesOf(rights[purpose], "")...)
		return rights[purpose][0].user
	}

	s.tell(t, 0, "topics", "apply", "-c", s.as(only(toApply)))
	forwarder := only(toRun)
	s.config = s.as(forwarder)
	s.tell(t, 0, "validate", "--kafka", "-c", s.config)
	s.tell(t, 0, "topics", "plan", "-c", s.config)
	s.tell(t, 0, "config", "print", "--effective", "-c", s.config)

	c := s.start()
	s.application(only(toConsume), func(r *kgo.Record) *kgo.Record {
		if _, again := header(r, "redrive-attempt"); again && string(r.Value) == "passes" {
			return nil
		}
		return failed(r, "TimeoutError")
	})
	s.client.Produce(
		&kgo.Record{Topic: s.origin, Key: []byte("1"), Value: []byte("passes")},
		&kgo.Record{Topic: s.origin, Key: []byte("2"), Value: []byte("never passes")},
		&kgo.Record{Topic: s.inbox(), Key: []byte("3"), Value: []byte("waits"), Headers: []kgo.RecordHeader{{Key: "redrive-retry-after", Value: []byte("50m")}}},
	)
	letters := s.client.WaitForRecords(patience, s.deadLetters(), 1)
	if reason, _ := header(letters[0], "redrive-reason"); string(letters[0].Value) != "never passes" || reason != "exhausted" {
		t.Errorf("in the dead letters is %q, for the reason %q", letters[0].Value, reason)
	}
	h := s.read()
	if came := len(h[s.origin]["passes"]); came != 2 {
		t.Errorf("the record that passes at the second try stands on the origin %d times, want 2", came)
	}
	if came := len(h[s.origin]["never passes"]); came != 4 {
		t.Errorf("the record that never passes stands on the origin %d times, want 4", came)
	}
	if r, err := c.ready(t.Context()); err != nil || !r.OK || len(r.Issues) > 0 {
		t.Errorf("readyz: %+v, %v; want ready, and no issue", r, err)
	}

	finder := s.as(only(toFind))
	if r := s.tell(t, 0, "find", "--key", "3", "-c", finder); !strings.Contains(r.stdout, "orders.retry.10m") {
		t.Errorf("find does not say where the record waits:\n%s", r.stdout)
	}
	viewer := s.as(only(toListOffsets))
	if r := s.tell(t, 0, "offsets", "list", "-c", viewer); !strings.Contains(r.stdout, "orders.retry.10m") {
		t.Errorf("offsets list:\n%s", r.stdout)
	}
	operator := s.as(only(toSetOffsets))
	set := []string{"offsets", "set", "--topic", s.tiers[0], "--partition", "0", "--to", "latest", "--timeout", "2s", "-c", operator}
	if r := s.tell(t, 1, set...); strings.Contains(r.stderr, "AUTHORIZATION") {
		t.Errorf("a decision about a partition that a forwarder reads:\n%s", r.stderr)
	}

	for _, path := range []string{"/metrics", "/readyz?verbose", "/readyz?format=json", "/livez?verbose"} {
		body, err := c.get(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		s.said.add(string(body))
	}
	c.term()
	s.said.add(c.tail())
	s.tell(t, 0, set...)

	s.expectMissing(rule{forwarder, kmsg.ACLOperationWrite, s.origin, ""})
	for _, r := range rulesOf(rights[toRun], "") {
		s.revoke(r)
		told := s.tell(t, 3, "validate", "--kafka", "-c", s.config).stdout
		want := "acl-missing"
		if r.operation == kmsg.ACLOperationDescribeConfigs {
			want = "config-unreadable"
		}
		resource := r.topic + r.group
		if !strings.Contains(told, want) || !strings.Contains(told, "kafka-acls.sh") || !strings.Contains(told, resource) {
			t.Errorf("without %v, validate --kafka says\n%s\nwant %s, %s and the command that grants it", r, told, want, resource)
		}
		s.grant(r)
	}
}

// expectMissing runs a forwarder without a right to write: it says so in one line with the command that grants it, holds what
// cannot be written, and goes on by itself once it is granted.
func (s *secured) expectMissing(r rule) {
	s.t.Helper()
	s.revoke(r)
	before := len(s.client.ReadAll(r.topic, kgo.ReadCommitted()))
	c := s.start()
	testkit.WaitFor(s.t, patience, "a line about "+r.String(), func(context.Context) error {
		for line := range strings.Lines(c.tail()) {
			if strings.Contains(line, "acl-missing") && strings.Contains(line, "kafka-acls.sh") && strings.Contains(line, "--topic "+r.topic) {
				s.t.Log(line)
				return nil
			}
		}
		return fmt.Errorf("not logged")
	})
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("not allowed yet")})
	c.awaitMetric("redrive_overdue_records", s.tiers[0], 1)
	s.grant(r)
	s.client.WaitForRecords(patience, r.topic, before+1)
	c.term()
	s.said.add(c.tail())
}

// TestWhoIsKeptOutIsToldWhyInOneLineWithTheRemedy by a command; that run says the same is in the stories below.
func TestWhoIsKeptOutIsToldWhyInOneLineWithTheRemedy(t *testing.T) {
	t.Parallel()
	s := secure(t, testkit.Secure{}, "redrive-forwarder")
	other, err := testkit.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	password := s.passwords["redrive-forwarder"]
	passwordFile := s.configFile("wrong-password", "pw-that-is-wrong\n")
	s.passwords["nobody"] = "pw-that-is-wrong"
	open, closed := strings.Join(s.kafka.Brokers(), ", "), strings.Join(s.kafka.SecureBrokers(), ", ")
	right := login("SCRAM-SHA-512", "redrive-forwarder", password)
	encrypted := func(keys string) string {
		return fmt.Sprintf(", tls: {enabled: true, caFilepath: %s%s}", s.authority.CAFile(), keys)
	}
	for _, tt := range []struct {
		name, kafka string
		want        []string
	}{
		{
			"wrong password, SCRAM", s.over(", sasl: {enabled: true, mechanism: SCRAM-SHA-512, username: redrive-forwarder, passwordFilepath: " + passwordFile + "}"),
			[]string{"SASL_AUTHENTICATION_FAILED", "SCRAM-SHA-512", "kafka.sasl"},
		},
		{
			"wrong password, PLAIN", s.over(login("PLAIN", "redrive-forwarder", "pw-that-is-wrong")),
			[]string{"SASL_AUTHENTICATION_FAILED", "kafka.sasl"},
		},
		{
			"unknown user", s.over(login("SCRAM-SHA-256", "somebody", password)),
			[]string{"SASL_AUTHENTICATION_FAILED", "kafka.sasl"},
		},
		{
			"a token that is none", s.over(", sasl: {enabled: true, mechanism: OAUTHBEARER, oauth: {token: pw-that-is-wrong}}"),
			[]string{"SASL_AUTHENTICATION_FAILED", "kafka.sasl"},
		},
		{
			"a mechanism that is not offered", s.over(", sasl: {enabled: true, mechanism: AWS_MSK_IAM, awsMskIam: {accessKey: AKID, secretKey: pw-that-is-wrong, region: eu-west-1}}"),
			[]string{"UNSUPPORTED_SASL_MECHANISM", "kafka.sasl.mechanism"},
		},
		{"no login", s.over(""), []string{"login", "kafka.sasl.enabled: true"}},
		{"a login that nobody wants", "brokers: [" + open + "]" + right, []string{"ILLEGAL_SASL_STATE", "kafka.sasl.enabled: false"}},
		{"plain text against TLS", "brokers: [" + closed + "]" + right, []string{closed, "expects TLS", "kafka.tls.enabled: true"}},
		{"TLS against plain text", "brokers: [" + open + "]" + encrypted("") + right, []string{open, "does not speak TLS", "kafka.tls.enabled: false"}},
		{
			"unknown authority", fmt.Sprintf("brokers: [%s], tls: {enabled: true, caFilepath: %s}%s", closed, other.CAFile(), right),
			[]string{closed, "unknown authority", other.CAFile()},
		},
		{
			"unknown authority, that of the system", fmt.Sprintf("brokers: [%s], tls: {enabled: true}%s", closed, right),
			[]string{closed, "unknown authority", "kafka.tls.caFilepath"},
		},
		{
			"host name", "brokers: [" + closed + "]" + encrypted(", serverName: kafka.example") + right,
			[]string{closed, "valid for localhost, not kafka.example", "kafka.tls.serverName"},
		},
		{"nobody there", "brokers: [127.0.0.1:1]", []string{"nothing listens on 127.0.0.1:1", "kafka.brokers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config := s.configure(strings.NewReplacer(" ", "-", ",", "").Replace(tt.name), tt.kafka)
			expectLine(t, s.tell(t, 1, "topics", "plan", "-c", config).stderr, tt.want...)
		})
	}
}

// expectLine fails the test unless the text is one line that names the remedy and holds all of this.
func expectLine(t *testing.T, text string, want ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1 || strings.Count(lines[0], "Remedy: ") != 1 {
		t.Errorf("want one line with its remedy, got\n%s", text)
	}
	t.Log(text)
	for _, want := range want {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestAnExpiredCertificateOfTheBrokersIsToldInOneLineWithTheRemedy(t *testing.T) {
	ended := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	s := secure(t, testkit.Secure{NotAfter: ended}, "redrive-forwarder")
	config := s.as("redrive-forwarder")
	expectLine(t, s.tell(t, 1, "topics", "plan", "-c", config).stderr,
		strings.Join(s.kafka.SecureBrokers(), ""), "CN=broker", "expired at "+ended.Format(time.RFC3339), "renew the certificate of the broker")
}

// TestAClientCertificateIsAskedForAndRenewedInPlace shows mutual TLS: who has no certificate, one that has expired or one of
// somebody else's is told so, and a forwarder that runs goes on by itself when its certificate is renewed.
func TestAClientCertificateIsAskedForAndRenewedInPlace(t *testing.T) {
	s := secure(t, testkit.Secure{Protocol: "SSL", ClientCertificates: true})
	other, err := testkit.NewAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inAnHour, anHourAgo := time.Now().Add(time.Hour), time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	issue := func(a *testkit.Authority, name string, notAfter time.Time) (kafka, certificate string) {
		t.Helper()
		certificate, key, err := a.Issue(name, notAfter)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("brokers: [%s], tls: {enabled: true, caFilepath: %s, certFilepath: %s, keyFilepath: %s}",
			strings.Join(s.kafka.SecureBrokers(), ", "), s.authority.CAFile(), certificate, key), certificate
	}
	expectOut := func(name, kafka string, want ...string) {
		t.Helper()
		expectLine(t, s.tell(t, 1, "topics", "plan", "-c", s.configure(name, kafka)).stderr, want...)
	}
	expectOut("none", s.over(""), "wants a client certificate and none is set", "kafka.tls.certFilepath")
	ended, certificate := issue(s.authority, "ended", anHourAgo)
	expectOut("ended", ended, "the client certificate "+certificate+" expired at "+anHourAgo.Format(time.RFC3339), "renew it in place")
	foreign, certificate := issue(other, "foreign", inAnHour)
	expectOut("foreign", foreign, "does not accept the client certificate "+certificate, "truststore")

	kafka, certificate := issue(s.authority, "forwarder", inAnHour)
	s.config = s.configure("open", fmt.Sprintf("brokers: [%s]", strings.Join(s.kafka.Brokers(), ", ")))
	s.tell(t, 0, "topics", "apply", "-c", s.config)
	s.config = s.configure("forwarder", kafka)
	s.grant(rulesOf(documentedRights(t)[toRun], "CN=forwarder")...)
	c := s.start()
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("before")})
	s.client.WaitForRecords(patience, s.origin, 1)

	issue(s.authority, "forwarder", anHourAgo)
	s.restart()
	s.awaitTold(c, "the client certificate "+certificate+" expired at")
	issue(s.authority, "forwarder", inAnHour)
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("after")})
	s.client.WaitForRecords(patience, s.origin, 2)
	c.term()
}

// restart ends every connection, as a broker that is updated does.
func (s *secured) restart() {
	s.t.Helper()
	if err := s.kafka.Stop(1); err != nil {
		s.t.Fatal(err)
	}
	if err := s.kafka.Start(s.t.Context(), 1); err != nil {
		s.t.Fatal(err)
	}
}

// awaitTold waits until a forwarder has logged a line with the text and a remedy.
func (s *secured) awaitTold(c *child, text string) {
	s.t.Helper()
	testkit.WaitFor(s.t, patience, "a line with "+text, func(context.Context) error {
		for line := range strings.Lines(c.tail()) {
			if strings.Contains(line, text) && strings.Contains(line, "Remedy: ") {
				return nil
			}
		}
		return fmt.Errorf("not logged")
	})
}

// TestAPasswordIsRenewedInPlace shows a forwarder that starts with the wrong password, waits and says so, and whose password is
// later changed while it runs. Before that, each mechanism with a password lets in who knows it.
func TestAPasswordIsRenewedInPlace(t *testing.T) {
	const user = "redrive-forwarder"
	s := secure(t, testkit.Secure{}, user)
	s.config = s.configure("open", fmt.Sprintf("brokers: [%s]", strings.Join(s.kafka.Brokers(), ", ")))
	s.tell(t, 0, "topics", "apply", "-c", s.config)
	s.grant(rulesOf(documentedRights(t)[toRun], "")...)

	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		s.tell(t, 0, "topics", "plan", "-c", s.configure(mechanism, s.over(login(mechanism, user, s.passwords[user]))))
	}

	file := s.configFile("password", "pw-that-is-wrong\n")
	s.passwords["wrong"] = "pw-that-is-wrong"
	s.config = s.configure(user, s.over(", sasl: {enabled: true, mechanism: SCRAM-SHA-512, username: "+user+", passwordFilepath: "+file+"}"))
	c := s.launch()
	s.awaitTold(c, "SASL_AUTHENTICATION_FAILED")
	testkit.WaitFor(t, patience, "readyz to say why", func(ctx context.Context) error {
		body, err := c.get(ctx, "/readyz?verbose")
		if err == nil && (!strings.Contains(string(body), "SASL_AUTHENTICATION_FAILED") || !strings.Contains(string(body), "kafka.sasl")) {
			err = fmt.Errorf("readyz:\n%s", body)
		}
		s.said.add(string(body))
		return err
	})
	s.configFile("password", s.passwords[user]+"\n")
	c.awaitAssigned(s.owned())
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("before")})
	s.client.WaitForRecords(patience, s.origin, 1)

	s.passwords["renewed"] = "pw-" + strings.ToLower(rand.Text()[:12])
	changed, err := s.client.Admin().AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: s.passwords["renewed"]},
	})
	if err != nil || !changed.Ok() {
		t.Fatalf("change the password: %v, %v", changed, err)
	}
	s.restart()
	s.awaitTold(c, "SASL_AUTHENTICATION_FAILED")
	s.configFile("password", s.passwords["renewed"]+"\n")
	s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: []byte("after")})
	s.client.WaitForRecords(patience, s.origin, 2)
	c.term()
	s.said.add(c.tail())
}

// TestATokenIsRenewedBeforeItExpires runs a forwarder on tokens of a few seconds, which an endpoint gives out, and a command on
// one in a file. Brokers end a connection whose token has expired.
func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	const (
		user   = "redrive-forwarder"
		secret = "pw-of-the-client"
		life   = 6 * time.Second
	)
	s := secure(t, testkit.Secure{})
	s.passwords["client"] = secret
	s.config = s.configure("open", fmt.Sprintf("brokers: [%s]", strings.Join(s.kafka.Brokers(), ", ")))
	s.tell(t, 0, "topics", "apply", "-c", s.config)
	s.grant(rulesOf(documentedRights(t)[toRun], "")...)

	var given atomic.Int64
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, ok := r.BasicAuth(); !ok || name != "forwarder" || password != secret || r.FormValue("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		given.Add(1)
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, unsignedToken(user, life), int(life.Seconds()))
	}))
	defer endpoint.Close()
	secretFile := s.configFile("secret", secret+"\n")
	s.config = s.configure(user, s.over(fmt.Sprintf(", sasl: {enabled: true, mechanism: OAUTHBEARER, oauth: {tokenEndpoint: %q, clientId: forwarder, clientSecretFilepath: %s}}",
		endpoint.URL+"/token", secretFile)))
	c := s.start()
	began, first := time.Now(), given.Load()
	sent := 0
	for ; time.Since(began) < 2*life; sent++ {
		s.client.Produce(&kgo.Record{Topic: s.inbox(), Value: fmt.Append(nil, sent)})
		pass(t, 500*time.Millisecond)
	}
	s.awaitDrained(sent)
	if n := given.Load() - first; n == 0 {
		t.Error("the forwarder has asked for no second token in twice the life of the first")
	}
	if told := c.tail(); strings.Contains(told, "SASL_AUTHENTICATION_FAILED") {
		t.Errorf("a token was not renewed in time:\n%s", told)
	}
	c.term()
	s.said.add(c.tail())
	t.Logf("%d records, %d tokens", sent, given.Load())

	tokenFile := s.configFile("token", unsignedToken(user, time.Minute))
	config := s.configure("file", s.over(", sasl: {enabled: true, mechanism: OAUTHBEARER, oauth: {tokenFilepath: "+tokenFile+", extensions: [{key: traceId, value: a-1}]}}"))
	s.tell(t, 0, "topics", "plan", "-c", config)
}

// unsignedToken is a JSON web token that the brokers of the tests accept.
func unsignedToken(subject string, life time.Duration) string {
	now := time.Now()
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." +
		encode(fmt.Appendf(nil, `{"sub":%q,"iat":%d,"exp":%d}`, subject, now.Unix(), now.Add(life).Unix())) + "."
}
