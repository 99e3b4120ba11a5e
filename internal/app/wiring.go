package app

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/forwarder"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/tiers"
)

// KafkaOptions are the connection options of every client of the process.
func KafkaOptions(o Options) kafka.Options {
	k := o.Config.Kafka
	options := kafka.Options{
		Brokers:  k.Brokers,
		ClientID: k.ClientID,
		Version:  o.Build.Version,
		Logger:   o.Logger,
	}
	if k.TLS.Enabled {
		options.TLS = &kafka.TLSOptions{
			CAFile:             k.TLS.CAFilepath,
			CertFile:           k.TLS.CertFilepath,
			KeyFile:            k.TLS.KeyFilepath,
			ServerName:         k.TLS.ServerName,
			InsecureSkipVerify: k.TLS.InsecureSkipTLSVerify,
		}
	}
	if k.SASL.Enabled {
		options.SASL = saslOptions(k.SASL)
	}
	return options
}

func saslOptions(s config.SASL) *kafka.SASLOptions {
	options := &kafka.SASLOptions{
		Mechanism:    s.Mechanism,
		Username:     s.Username,
		Password:     s.Password.Reveal(),
		PasswordFile: s.PasswordFilepath,
		OAuth: kafka.OAuthOptions{
			Token:            s.OAuth.Token.Reveal(),
			TokenFile:        s.OAuth.TokenFilepath,
			TokenEndpoint:    s.OAuth.TokenEndpoint,
			ClientID:         s.OAuth.ClientID,
			ClientSecret:     s.OAuth.ClientSecret.Reveal(),
			ClientSecretFile: s.OAuth.ClientSecretFilepath,
			Scope:            s.OAuth.Scope,
		},
		AWS: kafka.AWSOptions{
			AccessKey:    s.AWSMSKIAM.AccessKey,
			SecretKey:    s.AWSMSKIAM.SecretKey.Reveal(),
			SessionToken: s.AWSMSKIAM.SessionToken.Reveal(),
			Region:       s.AWSMSKIAM.Region,
			UserAgent:    s.AWSMSKIAM.UserAgent,
		},
	}
	for _, e := range s.OAuth.Extensions {
		if options.OAuth.Extensions == nil {
			options.OAuth.Extensions = map[string]string{}
		}
		options.OAuth.Extensions[e.Key] = e.Value
	}
	return options
}

// principal is how the brokers call this process, as far as the configuration
// tells: with certificates and tokens they decide.
func principal(s config.SASL) string {
	switch {
	case !s.Enabled:
		return ""
	case s.Mechanism == kafka.MechanismPlain, s.Mechanism == kafka.MechanismScramSHA256, s.Mechanism == kafka.MechanismScramSHA512:
		return "User:" + s.Username
	default:
		return ""
	}
}

// connect makes a client for questions about topics. It opens no connection yet.
// It does not log: whoever asks tells what went wrong, and not once for each try.
func connect(o Options) (*kgo.Client, error) {
	options := KafkaOptions(o)
	options.Logger = nil
	base, err := options.ClientOpts()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(base...)
	if err != nil {
		return nil, fmt.Errorf("make a kafka client: %w", err)
	}
	return client, nil
}

func forwarderOptions(o Options, registerer prometheus.Registerer) (forwarder.Options, error) {
	f := o.Config.Forwarder
	options := forwarder.Options{
		Kafka:                    KafkaOptions(o),
		Group:                    f.Group,
		InstanceID:               f.InstanceID,
		GroupProtocol:            f.GroupProtocol,
		RackID:                   o.Config.Kafka.RackID,
		SessionTimeout:           time.Duration(f.SessionTimeout),
		CommitInterval:           time.Duration(f.CommitInterval),
		ShutdownTimeout:          time.Duration(f.ShutdownTimeout),
		MaxUncommitted:           f.MaxUncommitted,
		MaxHeldBytes:             int64(f.MaxHeldBytes),
		MaxHeldBytesPerPartition: int64(f.MaxHeldBytesPerPartition),
		Logger:                   o.Logger,
		Registerer:               registerer,
		Tracer:                   o.tracer,
	}
	for _, t := range o.Config.Topics {
		policy, err := policyOf(t)
		if err != nil {
			return options, fmt.Errorf("topics: origin %s: %w", t.Origin, err)
		}
		partitioner, err := kafka.ParsePartitioner(t.Partitioner)
		if err != nil {
			return options, fmt.Errorf("topics: origin %s: %w", t.Origin, err)
		}
		options.Topics = append(options.Topics, forwarder.Topic{
			Policy:                   policy,
			Partitioner:              partitioner,
			MaxHeldBytesPerPartition: int64(t.MaxHeldBytesPerPartition),
			Group:                    t.Group,
			Paused:                   t.Paused,
			RateLimit:                t.RateLimit,
		})
	}
	return options, nil
}

func policyOf(t config.Topic) (*tiers.Policy, error) {
	options := tiers.Options{
		Origin:        t.Origin,
		ReturnTo:      t.ReturnTopic(),
		Inbox:         t.Inbox(),
		DeadLetters:   t.DeadLetters(),
		MaxAttempts:   t.MaxAttempts,
		MaxDeliveries: t.MaxDeliveries,
		MaxDelay:      time.Duration(t.MaxDelay),
	}
	for _, tier := range t.Tiers {
		options.Tiers = append(options.Tiers, tiers.Tier{
			Name:   tier.Name,
			Topic:  tier.Topic,
			Delay:  time.Duration(tier.Delay),
			Jitter: time.Duration(tier.Jitter),
		})
	}
	return tiers.New(options)
}

// preflight are the topics and the group of the configuration, as the planner
// wants them.
func preflight(cfg *config.Config) kafka.Preflight {
	return kafka.Preflight{Ladders: ladders(cfg), Group: cfg.Forwarder.Group, Principal: principal(cfg.Kafka.SASL)}
}

func ladders(cfg *config.Config) []kafka.Ladder {
	all := make([]kafka.Ladder, 0, len(cfg.Topics))
	for _, t := range cfg.Topics {
		ladder := kafka.Ladder{
			Origin:      t.Origin,
			ReturnTo:    t.ReturnTopic(),
			Inbox:       t.Inbox(),
			DeadLetters: t.DeadLetters(),
			Partitioner: kafka.Partitioner(t.Partitioner),

			ReplayTrigger: t.ReplayTrigger(),
			ReplayTo:      t.ReplayTo,
			ReplyTo:       t.ReplyTo,
		}
		for _, tier := range t.Tiers {
			ladder.Tiers = append(ladder.Tiers, kafka.Tier{
				Name:   tier.Name,
				Topic:  tier.Topic,
				Delay:  time.Duration(tier.Delay),
				Jitter: time.Duration(tier.Jitter),
			})
		}
		all = append(all, ladder)
	}
	return all
}
