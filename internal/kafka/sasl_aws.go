package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/twmb/franz-go/pkg/sasl"
)

// awsTimeout bounds the question for keys, which may go to a service of AWS.
const awsTimeout = 10 * time.Second

// AWSOptions says who AWS_MSK_IAM signs as. All fields may be empty.
type AWSOptions struct {
	// AccessKey and SecretKey are those of a user. Both or neither; neither leaves
	// it to the default chain of AWS, which renews what it finds.
	AccessKey, SecretKey string
	// SessionToken goes with temporary keys.
	SessionToken string
	// Region is that of the cluster. Empty: that in the broker's name, else that of
	// the environment or the profile.
	Region string
	// UserAgent is shown to IAM, whose policies may ask for it. Empty: "redrive/"
	// and the version.
	UserAgent string
}

// awsMechanism is SASL mechanism AWS_MSK_IAM: one message, which is a presigned
// request to the broker in JSON. That of kgo takes the region from the broker's name
// or the environment alone, which a cluster behind names of one's own does not have.
type awsMechanism struct {
	region    string // "": by the name of the broker
	fallback  string // where that does not tell
	userAgent string
	keys      aws.CredentialsProvider
}

// mechanism returns the kgo mechanism. It asks nobody for keys yet.
func (o AWSOptions) mechanism(brokers []string, userAgent string) (sasl.Mechanism, error) {
	if (o.AccessKey == "") != (o.SecretKey == "") {
		return nil, errors.New("sasl aws: access key and secret key must be given together")
	}
	if o.SessionToken != "" && o.AccessKey == "" {
		return nil, errors.New("sasl aws: a session token needs access key and secret key")
	}
	named := o.Region
	for _, broker := range brokers {
		if named == "" {
			named = regionOf(hostName(broker))
		}
	}
	load := []func(*config.LoadOptions) error{
		// For the services that give out keys; the region of the environment wins.
		config.WithDefaultRegion(named),
	}
	if o.AccessKey != "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(o.AccessKey, o.SecretKey, o.SessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(context.Background(), load...) // Reads the environment and files, and no more.
	if err != nil {
		return nil, fmt.Errorf("sasl aws: %w", err)
	}
	if named == "" && cfg.Region == "" {
		return nil, errors.New("sasl aws region: required, as neither the names of the brokers nor AWS_REGION tell it")
	}
	if o.UserAgent != "" {
		userAgent = o.UserAgent
	}
	return &awsMechanism{region: o.Region, fallback: cfg.Region, userAgent: userAgent, keys: cfg.Credentials}, nil
}

// Name implements sasl.Mechanism.
func (m *awsMechanism) Name() string { return MechanismAWSMSKIAM }

// Authenticate implements sasl.Mechanism.
func (m *awsMechanism) Authenticate(ctx context.Context, broker string) (sasl.Session, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	keys, err := m.keys.Retrieve(ctx)
	if err != nil {
		return nil, nil, withheld(&advice{
			fmt.Errorf("sasl aws: no keys: %w", err),
			"set kafka.sasl.awsMskIam.accessKey and secretKey, or give the process a role, a profile or AWS_ACCESS_KEY_ID",
		})
	}
	host := hostName(broker)
	region := m.region
	if region == "" {
		region = regionOf(host)
	}
	if region == "" {
		region = m.fallback
	}
	message, err := m.sign(ctx, keys, host, region, time.Now())
	if err != nil {
		return nil, nil, withheld(fmt.Errorf("sasl aws: sign the login to %s: %w", host, err))
	}
	return awsSession{}, message, nil
}

// sign returns the one message of the client.
func (m *awsMechanism) sign(ctx context.Context, keys aws.Credentials, host, region string, now time.Time) ([]byte, error) {
	const (
		service  = "kafka-cluster"
		lifetime = "900" // Seconds; that of Amazon's own client.
		// nothing is the SHA-256 of an empty body.
		nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	)
	query := url.Values{"Action": {service + ":Connect"}, "X-Amz-Expires": {lifetime}}
	target := url.URL{Scheme: "https", Host: host, Path: "/", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, keys, request, nothing, service, region, now.UTC())
	if err != nil {
		return nil, err
	}
	result, err := url.Parse(signed)
	if err != nil {
		return nil, errors.New("the signed request is no URL") // Whose text would show the signature.
	}
	message := map[string]string{"version": "2020_10_22", "host": host, "user-agent": m.userAgent}
	for key, values := range result.Query() {
		message[strings.ToLower(key)] = values[0]
	}
	return json.Marshal(message)
}

// awsSession waits for the one answer of the broker, which refuses by an error code.
type awsSession struct{}

// Challenge implements sasl.Session.
func (awsSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) == 0 {
		return false, nil, errors.New("sasl aws: the broker gave an empty answer")
	}
	return true, nil, nil
}

// regionOf returns the region in a host name of AWS; "" if there is none. It is the
// last part that looks like one, since a cluster or an endpoint may be named like a
// region.
func regionOf(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !regexp.MustCompile(`\.(amazonaws\.(com|com\.cn|eu)|api\.aws)$`).MatchString(host) {
		return ""
	}
	region := regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)
	for _, part := range slices.Backward(strings.Split(host, ".")) {
		if region.MatchString(part) {
			return part
		}
	}
	return ""
}
