package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// reported is a status: the phase, then conditions as "Type Status Reason message".
func reported(phase redisv1.Phase, conditions ...string) *redisv1.RedisClusterStatus {
	s := &redisv1.RedisClusterStatus{Phase: phase, ObservedGeneration: 1}
	for _, c := range conditions {
		f := append(strings.SplitN(c, " ", 4), "")
		s.Conditions = append(s.Conditions, metav1.Condition{Type: f[0], Status: metav1.ConditionStatus(f[1]), Reason: f[2], Message: f[3]})
	}
	return s
}

// The conditions of a cluster that is as it should be, and of one on its way.
const (
	ready      = "Ready True Converged 6 nodes"
	waiting    = "Ready False Waiting"
	healthy    = "Degraded False Healthy"
	settled    = "Progressing False Settled"
	scales     = "Progressing True Scaling 5 slots"
	updates    = "Progressing True Updating Pods"
	persistent = "Persistent True Volumes"
)

func TestChanges(t *testing.T) {
	const (
		running, creating, scaling     = redisv1.PhaseRunning, redisv1.PhaseCreating, redisv1.PhaseScaling
		updating, recovering, isFailed = redisv1.PhaseUpdating, redisv1.PhaseRecovering, redisv1.PhaseFailed
	)
	whole := reported(running, ready, settled, healthy, persistent)
	tests := []struct {
		name     string
		old, now *redisv1.RedisClusterStatus
		want     []string // kind, reason and message
	}{
		{"nothing new", whole, whole, nil},
		{"the first look", reported(""), reported(creating, waiting, "Progressing True Creating", "Degraded False Forming", "Persistent False NoStorage m"),
			[]string{"Warning NoStorage m"}},
		{"made", reported(creating, waiting), whole, []string{"Normal Created 6 nodes"}},
		{"made, with more to do", reported(creating, waiting), reported(scaling, waiting, scales, healthy),
			[]string{"Normal Created ", "Normal Scaling 5 slots"}},
		{"scaling begins", whole, reported(scaling, waiting, scales, healthy), []string{"Normal Scaling 5 slots"}},
		{"scaling goes on", reported(scaling, waiting, "Progressing True Scaling 6 slots"), reported(scaling, waiting, scales, healthy), nil},
		{"scaling ends", reported(scaling, waiting, scales), whole, []string{"Normal Scaled 6 nodes"}},
		{"scaling ends and a roll begins", reported(scaling, waiting, scales), reported(updating, waiting, updates, healthy),
			[]string{"Normal Scaled ", "Normal Updating Pods"}},
		{"a roll begins", whole, reported(updating, waiting, updates, healthy), []string{"Normal Updating Pods"}},
		{"a roll ends", reported(updating, waiting, updates), whole, []string{"Normal Updated 6 nodes"}},
		{"a roll is not over when scaling comes first", reported(updating, waiting, updates), reported(scaling, waiting, scales, healthy),
			[]string{"Normal Scaling 5 slots"}},
		{"a change that cannot begin", whole, reported(updating, "Ready False ConfigRefused no", "Progressing False Stalled no", "Degraded True ConfigRefused no"),
			[]string{"Warning ConfigRefused no"}},
		{"a loss is told by what it means", whole, reported(recovering, waiting, "Progressing True Recovering", "Degraded True NodeLost c-0-0"),
			[]string{"Warning NodeLost c-0-0"}},
		{"the same, of more nodes", reported(recovering, waiting, "Degraded True NodeLost c-0-0"), reported(recovering, waiting, "Degraded True NodeLost c-0-0, c-0-1"), nil},
		{"it gets worse", reported(recovering, waiting, "Degraded True NodeLost c-0-0"), reported(recovering, waiting, "Degraded True SlotsNotServed 5"),
			[]string{"Warning SlotsNotServed 5"}},
		{"recovered", reported(recovering, waiting), whole, []string{"Normal Recovered 6 nodes"}},
		{"recovered in the middle of scaling", reported(recovering, waiting), reported(scaling, waiting, scales, healthy),
			[]string{"Normal Recovered ", "Normal Scaling 5 slots"}},
		{"a person is needed, told once", whole, reported(isFailed, "Ready False Unsafe look", "Progressing False Stalled look", "Degraded True Unsafe look"),
			[]string{"Warning Unsafe look"}},
		{"a person has helped", reported(isFailed, "Ready False Unsafe look"), whole, []string{"Normal Recovered 6 nodes"}},
		{"something outside is missing, told once", whole, reported(updating, "Ready False SecretNotFound s", "Progressing False Stalled s", "Degraded True Blocked s"),
			[]string{"Warning SecretNotFound s"}},
		{"a roll stops", reported(updating, waiting, updates, healthy), reported(updating, "Ready False ImagePullFailed i", "Progressing False Stalled i", "Degraded True RollStopped r"),
			[]string{"Warning ImagePullFailed i", "Warning RollStopped r"}},
		{"an interruption", reported(updating, waiting, updates, healthy), reported(updating, waiting, updates, "Degraded True InterruptionAhead c-0-0"),
			[]string{"Warning InterruptionAhead c-0-0"}},
		{"the next one", reported(updating, waiting, updates, "Degraded True InterruptionAhead c-0-0"), reported(updating, waiting, updates, "Degraded True InterruptionAhead c-1-0"),
			[]string{"Warning InterruptionAhead c-1-0"}},
		{"paused", whole, reported(redisv1.PhasePaused, ready, settled, healthy, persistent),
			[]string{"Normal Paused the operator only looks until spec.paused is false"}},
		{"paused no more", reported(redisv1.PhasePaused, ready), whole, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, e := range changes(tt.old, tt.now) {
				if e.action == "" {
					t.Errorf("the API server takes no Event without an action: %+v", e)
				}
				got = append(got, fmt.Sprintf("%s %s %s", e.kind, e.reason, e.message))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Events %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOnlyDetails(t *testing.T) {
	scaling := func(conditions ...string) *redisv1.RedisClusterStatus {
		return reported(redisv1.PhaseScaling, conditions...)
	}
	about := func(generation int64) *redisv1.RedisClusterStatus {
		s := scaling(waiting)
		s.ObservedGeneration = generation
		return s
	}
	tests := []struct {
		name string
		a, b *redisv1.RedisClusterStatus
		want bool
	}{
		{"the slots that are left", scaling(waiting, scales), scaling(waiting, "Progressing True Scaling 4 slots"), true},
		{"the nodes that are lost", scaling(waiting, "Degraded True NodeLost a"), scaling(waiting, "Degraded True NodeLost a, b"), true},
		{"the step on the way", scaling("Ready False Scaling a"), scaling("Ready False Waiting b"), true},
		{"why a cluster is degraded", scaling(waiting, "Degraded True NodeLost a"), scaling(waiting, "Degraded True SlotsNotServed a"), false},
		{"that it is degraded", scaling(waiting, healthy), scaling(waiting, "Degraded True NodeLost a"), false},
		{"that it goes on no more", scaling(waiting, scales), scaling(waiting, "Progressing False Stalled 5 slots"), false},
		{"what it is at", scaling(waiting, scales), scaling(waiting, updates), false},
		{"who is interrupted next", scaling(waiting, "Degraded True InterruptionAhead a"), scaling(waiting, "Degraded True InterruptionAhead b"), false},
		{"that it is stalled", scaling(waiting), scaling(waiting, "Stalled True Unsafe a"), false},
		{"what asks for a person", scaling(waiting), scaling("Ready False Unsafe a"), false},
		{"the phase", scaling(waiting), reported(redisv1.PhaseUpdating, waiting), false},
		{"the spec that it is about", about(1), about(2), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := onlyDetails(tt.a, tt.b); got != tt.want {
				t.Errorf("a change of %s alone is a detail: %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}
