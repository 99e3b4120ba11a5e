package kafka

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/sasl"
	kgoaws "github.com/twmb/franz-go/pkg/sasl/aws"
)

// isolateAWS takes away what the machine of the test may have for AWS.
func isolateAWS(t *testing.T) {
	t.Helper()
	absent := filepath.Join(t.TempDir(), "absent")
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": absent, "AWS_SHARED_CREDENTIALS_FILE": absent, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_DEFAULT_PROFILE": "",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_ROLE_ARN": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
}

func newAWS(t *testing.T, o AWSOptions, brokers ...string) sasl.Mechanism {
	t.Helper()
	m, err := (&SASLOptions{Mechanism: MechanismAWSMSKIAM, AWS: o}).mechanism(Options{Brokers: brokers, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if m.Name() != "AWS_MSK_IAM" {
		t.Errorf("the mechanism is called %s", m.Name())
	}
	return m
}

// login returns the message of a mechanism to a broker.
func login(t *testing.T, m sasl.Mechanism, broker string) map[string]string {
	t.Helper()
	session, message, err := m.Authenticate(t.Context(), broker)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(message, &got); err != nil {
		t.Fatal(err)
	}
	if done, more, err := session.Challenge([]byte(`{"version":"2020_10_22"}`)); !done || more != nil || err != nil {
		t.Errorf("after the answer of the broker: %v, %q, %v", done, more, err)
	}
	return got
}

// TestTheSignatureIsThatOfAmazonsOwnSigner signs the same request at the same moment
// with the signer that Amazon publishes for its brokers, and with that of the client
// library, which shares no code with it.
func TestTheSignatureIsThatOfAmazonsOwnSigner(t *testing.T) {
	isolateAWS(t)
	for _, token := range []string{"", "a session/token+with=signs"} {
		for _, region := range []string{"us-east-1", "eu-central-1", "us-gov-west-1"} {
			synctest.Test(t, func(t *testing.T) { // Where the clock stands still.
				const key, secret = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
				host := "kafka." + region + ".amazonaws.com" // The one that Amazon's signer signs for.
				got := login(t, newAWS(t, AWSOptions{AccessKey: key, SecretKey: secret, SessionToken: token, UserAgent: "redrive"}, host+":9098"), host+":9098")

				vendor, _, err := signer.GenerateAuthTokenFromCredentialsProvider(t.Context(), region, aws.CredentialsProviderFunc(
					credentials.NewStaticCredentialsProvider(key, secret, token).Retrieve))
				if err != nil {
					t.Fatal(err)
				}
				signed, err := base64.RawURLEncoding.DecodeString(vendor)
				if err != nil {
					t.Fatal(err)
				}
				u, err := url.Parse(string(signed))
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"version": "2020_10_22", "host": u.Host}
				for name, values := range u.Query() {
					want[strings.ToLower(name)] = values[0]
				}
				want["user-agent"] = "redrive"
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-amazon +ours):\n%s", region, diff)
				}

				library := kgoaws.Auth{AccessKey: key, SecretKey: secret, SessionToken: token, UserAgent: "redrive"}.AsManagedStreamingIAMMechanism()
				if diff := cmp.Diff(login(t, library, host+":9098"), got); diff != "" {
					t.Errorf("%s (-library +ours):\n%s", region, diff)
				}
			})
		}
	}
}

// regionSigned is the region in the scope of a signature.
func regionSigned(message map[string]string) string {
	return strings.Split(message["x-amz-credential"], "/")[2]
}

func TestTheRegionIsThatOfTheSettingThenOfTheBrokerThenOfTheEnvironment(t *testing.T) {
	isolateAWS(t)
	const named, own = "b-1.eu-north-1.abc.c2.kafka.eu-west-1.amazonaws.com:9098", "kafka.corp.example:9098"
	keys := AWSOptions{AccessKey: "AKID", SecretKey: "secret"}
	set := keys
	set.Region = "ap-south-1"

	if got := regionSigned(login(t, newAWS(t, set, named), named)); got != "ap-south-1" {
		t.Errorf("by the setting: %s", got)
	}
	if got := regionSigned(login(t, newAWS(t, keys, named), named)); got != "eu-west-1" {
		t.Errorf("by the broker: %s", got)
	}
	if got := regionSigned(login(t, newAWS(t, keys, named), own)); got != "eu-west-1" {
		t.Errorf("a broker of another name, by the first one: %s", got)
	}
	_, err := Options{Brokers: []string{own}, SASL: &SASLOptions{Mechanism: MechanismAWSMSKIAM, AWS: keys}}.ClientOpts()
	if err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("no region at all: error %v", err)
	}
	t.Setenv("AWS_REGION", "sa-east-1")
	if got := regionSigned(login(t, newAWS(t, keys, own), own)); got != "sa-east-1" {
		t.Errorf("by the environment: %s", got)
	}
	if got := regionSigned(login(t, newAWS(t, keys, named), named)); got != "eu-west-1" {
		t.Errorf("by the broker before the environment: %s", got)
	}
}

func TestTheRegionIsReadFromTheNamesOfAmazonAlone(t *testing.T) {
	for host, want := range map[string]string{
		"b-1.demo-cluster-1.abc123.c2.kafka.us-east-1.amazonaws.com": "us-east-1",
		"boot-xyz.c1.kafka-serverless.eu-central-1.amazonaws.com":    "eu-central-1",
		"B-1.Orders.abc.c2.kafka.US-WEST-2.amazonaws.com.":           "us-west-2",
		"b-1.orders.abc.c2.kafka.cn-north-1.amazonaws.com.cn":        "cn-north-1",
		"vpce-0a1b2c.kafka.us-gov-west-1.vpce.amazonaws.com":         "us-gov-west-1",
		"b-1.orders.kafka.eusc-de-east-1.amazonaws.eu":               "eusc-de-east-1",
		"kafka-broker-eu-1.corp.example":                             "",
		"b-1.kafka.us-east-1.amazonaws.com.evil.example":             "",
		"notamazonaws.com": "",
		"127.0.0.1":        "",
	} {
		if got := regionOf(host); got != want {
			t.Errorf("regionOf(%s) = %q, want %q", host, got, want)
		}
	}
}

func TestTheUserAgentIsTheSettingOrTheVersion(t *testing.T) {
	isolateAWS(t)
	o := AWSOptions{AccessKey: "AKID", SecretKey: "secret", Region: "eu-west-1"}
	if got := login(t, newAWS(t, o, "broker:9098"), "broker:9098")["user-agent"]; got != "redrive/1.2.3" {
		t.Errorf("by default: %q", got)
	}
	o.UserAgent = "orders"
	if got := login(t, newAWS(t, o, "broker:9098"), "broker:9098")["user-agent"]; got != "orders" {
		t.Errorf("set: %q", got)
	}
}

// TestTheDefaultChainGivesKeysAndRenewsThem shows it with the credentials of a
// container, which is what Pod Identity uses.
func TestTheDefaultChainGivesKeysAndRenewsThem(t *testing.T) {
	isolateAWS(t)
	given := []string{"AKIDONE", "AKIDTWO"}
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		key := given[0]
		given = given[1:]
		// Renewed five minutes before its end, so at once.
		_ = json.NewEncoder(w).Encode(map[string]string{
			"AccessKeyId": key, "SecretAccessKey": "secret", "Token": "token of " + key,
			"Expiration": time.Now().Add(time.Second).UTC().Format(time.RFC3339),
		})
	}))
	defer role.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", role.URL)
	m := newAWS(t, AWSOptions{Region: "eu-west-1"}, "broker:9098")
	for _, key := range []string{"AKIDONE", "AKIDTWO"} {
		got := login(t, m, "broker:9098")
		if !strings.HasPrefix(got["x-amz-credential"], key+"/") || got["x-amz-security-token"] != "token of "+key {
			t.Errorf("signed as %s with %q, want %s", got["x-amz-credential"], got["x-amz-security-token"], key)
		}
	}
}

func TestNoKeysAreToldWithTheRemedy(t *testing.T) {
	isolateAWS(t)
	_, _, err := newAWS(t, AWSOptions{Region: "eu-west-1"}, "broker:9098").Authenticate(t.Context(), "broker:9098")
	line := Explain(err)
	if Classify(err) != Transient || Code(err) != "connection" || !strings.Contains(line, "no keys") || !strings.Contains(line, "kafka.sasl.awsMskIam.accessKey") {
		t.Errorf("%v is %v, %s: %s", err, Classify(err), Code(err), line)
	}
}

func TestAWSNamesWhatIsMissing(t *testing.T) {
	isolateAWS(t)
	for _, o := range []AWSOptions{
		{AccessKey: "AKID", Region: "eu-west-1"},
		{SecretKey: "secret", Region: "eu-west-1"},
		{SessionToken: "token", Region: "eu-west-1"},
	} {
		_, err := Options{Brokers: []string{"broker:9098"}, SASL: &SASLOptions{Mechanism: MechanismAWSMSKIAM, AWS: o}}.ClientOpts()
		if err == nil || !strings.Contains(err.Error(), "access key") || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
}
