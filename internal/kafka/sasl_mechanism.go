package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms that [SASLOptions] knows, by the names Kafka gives them.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
	MechanismOAuthBearer = "OAUTHBEARER"
	MechanismAWSMSKIAM   = "AWS_MSK_IAM"
)

// SASLOptions says how connections authenticate.
type SASLOptions struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM.
	Mechanism string
	// Username is required for PLAIN and SCRAM, and unused otherwise.
	Username string
	// Password is used when PasswordFile is empty. PLAIN and SCRAM require exactly
	// one of the two.
	Password string
	// PasswordFile holds the password; line ends at its end are no part of it. It
	// is read again for every authentication, so that the secret can be rotated in
	// place.
	PasswordFile string
	// OAuth says where the token of OAUTHBEARER comes from.
	OAuth OAuthOptions
	// AWS says who AWS_MSK_IAM signs as. The zero value leaves it to the default
	// chain of AWS: environment, profile, web identity, role of the machine.
	AWS AWSOptions
}

// mechanism returns the kgo mechanism, which asks for the secret anew for each
// authentication. The options are those of the client it is for.
func (s *SASLOptions) mechanism(client Options) (sasl.Mechanism, error) {
	switch s.Mechanism {
	case MechanismPlain, MechanismScramSHA256, MechanismScramSHA512:
		return s.passwordMechanism()
	case MechanismOAuthBearer:
		return s.OAuth.mechanism(client.TLS)
	case MechanismAWSMSKIAM:
		return s.AWS.mechanism(client.Brokers, softwareName+"/"+softwareVersion(client.Version))
	default:
		known := []string{MechanismPlain, MechanismScramSHA256, MechanismScramSHA512, MechanismOAuthBearer}
		return nil, fmt.Errorf("sasl mechanism %q: want %s or %s", s.Mechanism, strings.Join(known, ", "), MechanismAWSMSKIAM)
	}
}

// passwordMechanism returns a mechanism that shows, or proves to know, a password.
func (s *SASLOptions) passwordMechanism() (sasl.Mechanism, error) {
	if s.Username == "" {
		return nil, errors.New("sasl username: required")
	}
	if (s.Password == "") == (s.PasswordFile == "") {
		return nil, errors.New("sasl password: exactly one of password and password file is required")
	}
	if _, err := s.password(); err != nil {
		return nil, err
	}
	if s.Mechanism == MechanismPlain {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, withheld(err)
		}), nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		password, err := s.password()
		return scram.Auth{User: s.Username, Pass: password}, withheld(err)
	}
	if s.Mechanism == MechanismScramSHA256 {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}

func (s *SASLOptions) password() (string, error) {
	return secretOf("sasl password file", s.Password, s.PasswordFile)
}

// secretOf returns the secret itself or, if file is not empty, what that holds now.
// Line ends at its end are no part of a secret. An error names the file and nothing
// of what is in it.
func secretOf(what, secret, file string) (string, error) {
	if file == "" {
		return secret, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", &advice{fmt.Errorf("%s: %w", what, err), "mend the file; it is read again for the next connection"}
	}
	content = bytes.TrimRight(content, "\r\n")
	if len(content) == 0 {
		return "", &advice{fmt.Errorf("%s: %s is empty", what, file), "write the secret into it; it is read again for the next connection"}
	}
	return string(content), nil
}

// withheld makes an error of what a login needs one that lasts as long as its cause:
// as with a broker that cannot be reached, records wait.
func withheld(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return unreachable("sasl", err)
}
