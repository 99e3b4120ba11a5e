package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// classOfCode is every error code of the protocol and the class somebody decided
// on for it.
var classOfCode = map[int16]Class{
	kerr.UnknownServerError.Code:                     Transient,
	kerr.OffsetOutOfRange.Code:                       Transient,
	kerr.CorruptMessage.Code:                         Transient,
	kerr.UnknownTopicOrPartition.Code:                Transient,
	kerr.InvalidFetchSize.Code:                       Transient,
	kerr.LeaderNotAvailable.Code:                     Transient,
	kerr.NotLeaderForPartition.Code:                  Transient,
	kerr.RequestTimedOut.Code:                        Transient,
	kerr.BrokerNotAvailable.Code:                     Transient,
	kerr.ReplicaNotAvailable.Code:                    Transient,
	kerr.MessageTooLarge.Code:                        RecordRefused,
	kerr.StaleControllerEpoch.Code:                   Transient,
	kerr.OffsetMetadataTooLarge.Code:                 Transient,
	kerr.NetworkException.Code:                       Transient,
	kerr.CoordinatorLoadInProgress.Code:              Transient,
	kerr.CoordinatorNotAvailable.Code:                Transient,
	kerr.NotCoordinator.Code:                         Transient,
	kerr.InvalidTopicException.Code:                  Transient,
	kerr.RecordListTooLarge.Code:                     RecordRefused,
	kerr.NotEnoughReplicas.Code:                      Transient,
	kerr.NotEnoughReplicasAfterAppend.Code:           Transient,
	kerr.InvalidRequiredAcks.Code:                    Transient,
	kerr.IllegalGeneration.Code:                      Transient,
	kerr.InconsistentGroupProtocol.Code:              Transient,
	kerr.InvalidGroupID.Code:                         Transient,
	kerr.UnknownMemberID.Code:                        Transient,
	kerr.InvalidSessionTimeout.Code:                  Transient,
	kerr.RebalanceInProgress.Code:                    Transient,
	kerr.InvalidCommitOffsetSize.Code:                Transient,
	kerr.TopicAuthorizationFailed.Code:               Transient,
	kerr.GroupAuthorizationFailed.Code:               Transient,
	kerr.ClusterAuthorizationFailed.Code:             Transient,
	kerr.InvalidTimestamp.Code:                       Transient,
	kerr.UnsupportedSaslMechanism.Code:               Transient,
	kerr.IllegalSaslState.Code:                       Transient,
	kerr.UnsupportedVersion.Code:                     Transient,
	kerr.TopicAlreadyExists.Code:                     Transient,
	kerr.InvalidPartitions.Code:                      Transient,
	kerr.InvalidReplicationFactor.Code:               Transient,
	kerr.InvalidReplicaAssignment.Code:               Transient,
	kerr.InvalidConfig.Code:                          Transient,
	kerr.NotController.Code:                          Transient,
	kerr.InvalidRequest.Code:                         Transient,
	kerr.UnsupportedForMessageFormat.Code:            RecordRefused,
	kerr.PolicyViolation.Code:                        Transient,
	kerr.OutOfOrderSequenceNumber.Code:               Transient,
	kerr.DuplicateSequenceNumber.Code:                Transient,
	kerr.InvalidProducerEpoch.Code:                   Transient,
	kerr.InvalidTxnState.Code:                        Transient,
	kerr.InvalidProducerIDMapping.Code:               Transient,
	kerr.InvalidTransactionTimeout.Code:              Transient,
	kerr.ConcurrentTransactions.Code:                 Transient,
	kerr.TransactionCoordinatorFenced.Code:           Transient,
	kerr.TransactionalIDAuthorizationFailed.Code:     Transient,
	kerr.SecurityDisabled.Code:                       Transient,
	kerr.OperationNotAttempted.Code:                  Transient,
	kerr.KafkaStorageError.Code:                      Transient,
	kerr.LogDirNotFound.Code:                         Transient,
	kerr.SaslAuthenticationFailed.Code:               Transient,
	kerr.UnknownProducerID.Code:                      Transient,
	kerr.ReassignmentInProgress.Code:                 Transient,
	kerr.DelegationTokenAuthDisabled.Code:            Transient,
	kerr.DelegationTokenNotFound.Code:                Transient,
	kerr.DelegationTokenOwnerMismatch.Code:           Transient,
	kerr.DelegationTokenRequestNotAllowed.Code:       Transient,
	kerr.DelegationTokenAuthorizationFailed.Code:     Transient,
	kerr.DelegationTokenExpired.Code:                 Transient,
	kerr.InvalidPrincipalType.Code:                   Transient,
	kerr.NonEmptyGroup.Code:                          Transient,
	kerr.GroupIDNotFound.Code:                        Transient,
	kerr.FetchSessionIDNotFound.Code:                 Transient,
	kerr.InvalidFetchSessionEpoch.Code:               Transient,
	kerr.ListenerNotFound.Code:                       Transient,
	kerr.TopicDeletionDisabled.Code:                  Transient,
	kerr.FencedLeaderEpoch.Code:                      Transient,
	kerr.UnknownLeaderEpoch.Code:                     Transient,
	kerr.UnsupportedCompressionType.Code:             Transient,
	kerr.StaleBrokerEpoch.Code:                       Transient,
	kerr.OffsetNotAvailable.Code:                     Transient,
	kerr.MemberIDRequired.Code:                       Transient,
	kerr.PreferredLeaderNotAvailable.Code:            Transient,
	kerr.GroupMaxSizeReached.Code:                    Transient,
	kerr.FencedInstanceID.Code:                       Fenced,
	kerr.EligibleLeadersNotAvailable.Code:            Transient,
	kerr.ElectionNotNeeded.Code:                      Transient,
	kerr.NoReassignmentInProgress.Code:               Transient,
	kerr.GroupSubscribedToTopic.Code:                 Transient,
	kerr.InvalidRecord.Code:                          RecordRefused,
	kerr.UnstableOffsetCommit.Code:                   Transient,
	kerr.ThrottlingQuotaExceeded.Code:                Transient,
	kerr.ProducerFenced.Code:                         Transient,
	kerr.ResourceNotFound.Code:                       Transient,
	kerr.DuplicateResource.Code:                      Transient,
	kerr.UnacceptableCredential.Code:                 Transient,
	kerr.InconsistentVoterSet.Code:                   Transient,
	kerr.InvalidUpdateVersion.Code:                   Transient,
	kerr.FeatureUpdateFailed.Code:                    Transient,
	kerr.PrincipalDeserializationFailure.Code:        Transient,
	kerr.SnapshotNotFound.Code:                       Transient,
	kerr.PositionOutOfRange.Code:                     Transient,
	kerr.UnknownTopicID.Code:                         Transient,
	kerr.DuplicateBrokerRegistration.Code:            Transient,
	kerr.BrokerIDNotRegistered.Code:                  Transient,
	kerr.InconsistentTopicID.Code:                    Transient,
	kerr.InconsistentClusterID.Code:                  Transient,
	kerr.TransactionalIDNotFound.Code:                Transient,
	kerr.FetchSessionTopicIDError.Code:               Transient,
	kerr.IneligibleReplica.Code:                      Transient,
	kerr.NewLeaderElected.Code:                       Transient,
	kerr.OffsetMovedToTieredStorage.Code:             Transient,
	kerr.FencedMemberEpoch.Code:                      Transient,
	kerr.UnreleasedInstanceID.Code:                   Transient,
	kerr.UnsupportedAssignor.Code:                    Transient,
	kerr.StaleMemberEpoch.Code:                       Transient,
	kerr.MismatchedEndpointType.Code:                 Transient,
	kerr.UnsupportedEndpointType.Code:                Transient,
	kerr.UnknownControllerID.Code:                    Transient,
	kerr.UnknownSubscriptionID.Code:                  Transient,
	kerr.TelemetryTooLarge.Code:                      Transient,
	kerr.InvalidRegistration.Code:                    Transient,
	kerr.TransactionAbortable.Code:                   Transient,
	kerr.InvalidRecordState.Code:                     Transient,
	kerr.ShareSessionNotFound.Code:                   Transient,
	kerr.InvalidShareSessionEpoch.Code:               Transient,
	kerr.FencedStateEpoch.Code:                       Transient,
	kerr.InvalidVoterKey.Code:                        Transient,
	kerr.DuplicateVoter.Code:                         Transient,
	kerr.VoterNotFound.Code:                          Transient,
	kerr.InvalidRegularExpression.Code:               Transient,
	kerr.RebootstrapRequired.Code:                    Transient,
	kerr.StreamsInvalidTopology.Code:                 Transient,
	kerr.StreamsInvalidTopologyEpoch.Code:            Transient,
	kerr.StreamsTopologyFenced.Code:                  Transient,
	kerr.ShareSessionLimitReached.Code:               Transient,
	kerr.GroupDeletionFailed.Code:                    Transient,
	kerr.StreamsTopologyDescriptionUpdateFailed.Code: Transient,
	kerr.ControllerIDNotRegistered.Code:              Transient,
}

func TestEveryErrorCodeIsPlaced(t *testing.T) {
	for code := int16(-1); code < 2000; code++ {
		err := kerr.TypedErrorForCode(code)
		if err == nil || err.Code != code {
			continue // Zero is no error, and a code that kerr does not know comes back as UNKNOWN_SERVER_ERROR.
		}
		want, placed := classOfCode[code]
		if !placed {
			t.Errorf("%s (%d) is new: decide on its class in classifyCode and list it here", err.Message, code)
			continue
		}
		if got := Classify(fmt.Errorf("produce orders/0: %w", err)); got != want {
			t.Errorf("Classify(%s) = %v, want %v", err.Message, got, want)
		}
		if got := Code(fmt.Errorf("produce orders/0: %w", err)); got != err.Message {
			t.Errorf("Code(%s) = %q", err.Message, got)
		}
	}
}

func TestErrorsOfTheClientAreClassedByTypeAndNotByText(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	tests := []struct {
		name  string
		err   error
		class Class
		code  string
	}{
		{"no error", nil, None, ""},
		{"cancelled", fmt.Errorf("produce: %w", context.Canceled), Canceled, "canceled"},
		{"client closed", kgo.ErrClientClosed, Canceled, "canceled"},
		{"aborting", kgo.ErrAborting, Canceled, "canceled"},
		{"deadline", context.DeadlineExceeded, Transient, "timeout"},
		{"record timeout", kgo.ErrRecordTimeout, Transient, "timeout"},
		{"record retries", kgo.ErrRecordRetries, Transient, "timeout"},
		{"dial", fmt.Errorf("unable to dial: %w", dial), Transient, "connection"},
		{"end of file", io.EOF, Transient, "connection"},
		{"closed connection", net.ErrClosed, Transient, "connection"},
		{"text of a refusal", errors.New("MESSAGE_TOO_LARGE: no kerr.Error"), Transient, "other"},
		{"refusal and a cancelled context", errors.Join(context.Canceled, kerr.MessageTooLarge), RecordRefused, "MESSAGE_TOO_LARGE"},
		{"fenced and a closed client", errors.Join(kgo.ErrClientClosed, kerr.FencedInstanceID), Fenced, "FENCED_INSTANCE_ID"},
		{"transient answer and a cancelled context", errors.Join(kerr.NotEnoughReplicas, context.Canceled), Canceled, "NOT_ENOUGH_REPLICAS"},
		{"a code nobody knows", &kerr.Error{Code: 31999, Message: "free text"}, Transient, "UNKNOWN_SERVER_ERROR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Classify(tt.err); got != tt.class {
				t.Errorf("Classify = %v, want %v", got, tt.class)
			}
			if got := Code(tt.err); got != tt.code {
				t.Errorf("Code = %q, want %q", got, tt.code)
			}
		})
	}
}

func TestRecordAboveTheClientsOwnLimitIsRefused(t *testing.T) {
	cluster := fakeCluster(t)
	if err := cluster.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	client := fakeClient(t, cluster, kgo.ProducerBatchMaxBytes(2000))
	err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: bytes.Repeat([]byte("x"), 4000)}).FirstErr()
	if Classify(err) != RecordRefused {
		t.Errorf("Classify(%v) = %v, want %v", err, Classify(err), RecordRefused)
	}
}
