package app

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-redrive/redrive/internal/config"
	"github.com/kafka-redrive/redrive/internal/deadletter"
	"github.com/kafka-redrive/redrive/internal/kafka"
	"github.com/kafka-redrive/redrive/internal/replayer/api"
	"github.com/kafka-redrive/redrive/internal/replayer/expiry"
	"github.com/kafka-redrive/redrive/internal/replayer/index"
	"github.com/kafka-redrive/redrive/internal/replayer/replay"
)

// The default of kafka.clientId is the name of the forwarder. Where that is set the
// brokers know the dlt-replayer by a name of its own.
const (
	forwarderClientID = "redrive-forwarder"
	replayerClientID  = "redrive-dlt-replayer"
)

func replayerKafka(o Options) kafka.Options {
	options := KafkaOptions(o)
	if options.ClientID == forwarderClientID {
		options.ClientID = replayerClientID
	}
	return options
}

func indexOptions(o Options, ledger index.Ledger, registerer prometheus.Registerer) index.Options {
	r := o.Config.Replayer
	options := index.Options{
		Kafka:           replayerKafka(o),
		Ledger:          ledger,
		Group:           r.Group,
		InstanceID:      r.InstanceID,
		SessionTimeout:  time.Duration(r.SessionTimeout),
		ShutdownTimeout: time.Duration(r.ShutdownTimeout),
		KeepPayload:     o.Config.Ledger.KeepPayload,
		LabelHeader:     r.LabelHeader,
		Logger:          o.Logger,
		Registerer:      registerer,
	}
	for _, t := range o.Config.Topics {
		topic := index.Topic{DeadLetters: t.DeadLetters(), Origin: t.Origin, ReturnTo: t.ReturnTopic(), Group: t.Group}
		for _, tier := range t.Tiers {
			topic.Ladder += time.Duration(tier.Delay + tier.Jitter)
		}
		options.Topics = append(options.Topics, topic)
	}
	return options
}

func replayOptions(o Options, owner string, ledger deadletter.Ledger, registerer prometheus.Registerer) replay.Options {
	r := o.Config.Replayer
	options := replay.Options{
		Kafka:           replayerKafka(o),
		Ledger:          ledger,
		Owner:           owner,
		Group:           r.Group,
		SessionTimeout:  time.Duration(r.SessionTimeout),
		Lease:           time.Duration(r.Lease),
		InFlight:        r.InFlight,
		Batch:           r.Batch,
		BulkLimit:       r.BulkLimit,
		RateLimit:       r.RateLimit,
		DefaultRate:     r.DefaultRate,
		ShutdownTimeout: time.Duration(r.ShutdownTimeout),
		Logger:          o.Logger,
		Registerer:      registerer,
		Tracer:          o.tracer,
	}
	if r.InstanceID != "" {
		// The index is a member of the group as well, under the plain one.
		options.InstanceID = r.InstanceID + "-triggers"
	}
	for _, t := range o.Config.Topics {
		options.Topics = append(options.Topics, replay.Topic{
			DeadLetters: t.DeadLetters(),
			Origin:      t.Origin,
			ReturnTo:    t.ReturnTopic(),
			Trigger:     t.ReplayTrigger(),
			Group:       t.Group,
			Partitioner: kafka.Partitioner(t.Partitioner),
			ReplayTo:    t.ReplayTo,
			ReplyTo:     t.ReplyTo,
		})
	}
	return options
}

func radarOptions(o Options, client *kgo.Client, ledger expiry.Ledger, registerer prometheus.Registerer) expiry.Options {
	options := expiry.Options{
		Client:     client,
		Ledger:     ledger,
		Group:      o.Config.Forwarder.Group,
		Within:     time.Duration(o.Config.Replayer.Expiry.Within),
		Logger:     o.Logger,
		Registerer: registerer,
	}
	for _, t := range o.Config.Topics {
		topic := expiry.Topic{DeadLetters: t.DeadLetters(), Waiting: []expiry.Room{{Topic: t.Inbox()}}}
		for _, tier := range t.Tiers {
			topic.Waiting = append(topic.Waiting, expiry.Room{Topic: tier.Topic, Wait: time.Duration(tier.Delay + tier.Jitter)})
		}
		options.Topics = append(options.Topics, topic)
	}
	return options
}

func apiOptions(o Options, tokens []api.Token, ledger api.Ledger, replays api.Replayer, registerer prometheus.Registerer) api.Options {
	r := o.Config.Replayer
	options := api.Options{
		Address:    r.API.Address,
		Ledger:     ledger,
		Replayer:   replays,
		Tokens:     tokens,
		MaxBody:    int64(r.API.MaxBody),
		BulkLimit:  int64(r.BulkLimit),
		Version:    o.Build.Version,
		Logger:     o.Logger,
		Registerer: registerer,
		Tracer:     o.tracer,
	}
	for _, t := range o.Config.Topics {
		options.Topics = append(options.Topics, t.DeadLetters())
	}
	return options
}

// tokensOf are the tokens of the configuration and those of its file. The error is
// a *config.Errors if it is about the file.
func tokensOf(cfg *config.Config) ([]api.Token, error) {
	settings := cfg.Replayer.API
	all := settings.Tokens
	if settings.TokensFilepath != "" {
		more, err := config.LoadTokens(settings.TokensFilepath, settings.Tokens)
		if err != nil {
			return nil, err
		}
		all = append(slices.Clip(all), more...)
	}
	tokens := make([]api.Token, 0, len(all))
	for _, t := range all {
		token := api.Token{Name: t.Name, Role: api.Role(t.Role), Topics: t.Topics}
		if n, err := hex.Decode(token.SHA256[:], []byte(t.SHA256)); err != nil || n != len(token.SHA256) {
			return nil, &ConfigError{fmt.Errorf("token %s: its sum is not one", t.Name)}
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// replayerPreflight are the topics and the group of the configuration, as the
// planner wants them for a dlt-replayer.
func replayerPreflight(cfg *config.Config) kafka.Preflight {
	return kafka.Preflight{Replayer: true, Ladders: ladders(cfg), Group: cfg.Replayer.Group, Principal: principal(cfg.Kafka.SASL)}
}
