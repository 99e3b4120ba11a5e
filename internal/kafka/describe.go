package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicDescription is what one metadata answer says of one topic.
type topicDescription struct {
	id         [16]byte
	partitions []kmsg.MetadataResponseTopicPartition
	operations operations
	err        error
}

func (d topicDescription) count() int32 {
	return int32(len(d.partitions)) // The protocol counts in 32 bits.
}

// replicas returns the replication factor of the topic: that of the partition with
// the fewest, because that one decides what survives.
func (d topicDescription) replicas() int16 {
	least := 0
	for i, partition := range d.partitions {
		if n := len(partition.Replicas); i == 0 || n < least {
			least = n
		}
	}
	return int16(least)
}

// led reports whether every partition has a leader.
func (d topicDescription) led() bool {
	for _, partition := range d.partitions {
		if partition.Leader < 0 || partition.ErrorCode != 0 {
			return false
		}
	}
	return true
}

// requestor sends a request: a client, or one broker of it.
type requestor interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// describeTopics asks for the metadata of topics, which must not be empty. The
// request is made here and not by kadm because that fails it as a whole when one
// topic is not authorized, and because a cached answer is no answer here.
func describeTopics(ctx context.Context, to requestor, topics []string) (map[string]topicDescription, error) {
	return askTopics(ctx, to, topics, false)
}

// describeAllowed is describeTopics with what this principal may do with each
// topic, which costs the brokers some questions to their authorizer.
func describeAllowed(ctx context.Context, to requestor, topics []string) (map[string]topicDescription, error) {
	return askTopics(ctx, to, topics, true)
}

func askTopics(ctx context.Context, to requestor, topics []string, allowed bool) (map[string]topicDescription, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	request.IncludeTopicAuthorizedOperations = allowed
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		request.Topics = append(request.Topics, t)
	}
	response, err := request.RequestWith(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("read topic metadata: %w", err)
	}
	described := make(map[string]topicDescription, len(response.Topics))
	for _, t := range response.Topics {
		if t.Topic == nil {
			continue
		}
		d := topicDescription{id: t.TopicID, partitions: t.Partitions, operations: operations(t.AuthorizedOperations), err: kerr.ErrorForCode(t.ErrorCode)}
		if d.err == nil && len(d.partitions) == 0 {
			d.err = kerr.UnknownTopicOrPartition
		}
		described[*t.Topic] = d
	}
	for _, topic := range topics {
		if _, ok := described[topic]; !ok {
			described[topic] = topicDescription{err: errors.New("the brokers did not describe the topic")}
		}
	}
	return described, nil
}

// topicConfig is the effective configuration of one topic: its own settings, and
// for the others those of the brokers.
type topicConfig struct {
	values map[string]string
	err    error
}

// describeConfigs asks for the configuration of topics. As with describeTopics, a
// topic that may not be read is an error of that topic and not of the request.
func describeConfigs(ctx context.Context, to requestor, topics []string) (map[string]topicConfig, error) {
	configs := make(map[string]topicConfig, len(topics))
	if len(topics) == 0 {
		return configs, nil
	}
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType = kmsg.ConfigResourceTypeTopic
		r.ResourceName = topic
		request.Resources = append(request.Resources, r)
	}
	response, err := request.RequestWith(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("read topic configuration: %w", err)
	}
	for _, r := range response.Resources {
		c := topicConfig{values: make(map[string]string, len(r.Configs)), err: kerr.ErrorForCode(r.ErrorCode)}
		for _, config := range r.Configs {
			if config.Value != nil {
				c.values[config.Name] = *config.Value
			}
		}
		configs[r.ResourceName] = c
	}
	for _, topic := range topics {
		if _, ok := configs[topic]; !ok {
			configs[topic] = topicConfig{err: errors.New("the brokers did not describe the configuration")}
		}
	}
	return configs, nil
}
