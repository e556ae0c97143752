package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

func crashed(pid string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: 1, Message: pid + ":M 01 Dec 2026 08:49:3" + pid + ".880 # Bad directive\n"}
}

// TestACrashLoopIsOneProblem: the same words in every state of the loop and for
// every start, so that the status is written once, and none once it listens.
func TestACrashLoopIsOneProblem(t *testing.T) {
	no, yes := false, true
	const want = "Pod c-0-0: the server ended with code 1: Bad directive"
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed"}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	tests := []struct {
		name   string
		status corev1.ContainerStatus
		want   string
	}{
		{"ended for the first time", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: crashed("1")}}, want},
		{"waits for the next start", corev1.ContainerStatus{State: waiting, LastTerminationState: corev1.ContainerState{Terminated: crashed("1")}}, want},
		{"runs for a moment", corev1.ContainerStatus{State: runs, Started: &no, LastTerminationState: corev1.ContainerState{Terminated: crashed("1")}}, want},
		{"ended again", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: crashed("2")}}, want},
		{"listens after an earlier crash", corev1.ContainerStatus{State: runs, Started: &yes, LastTerminationState: corev1.ContainerState{Terminated: crashed("2")}}, ""},
		{"starts for the first time", corev1.ContainerStatus{State: runs, Started: &no}, ""},
		{"ended in order", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.status.Name = manifests.RedisContainer
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c-0-0"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{tt.status}}}
			got, ok := podProblem(pod)
			if ok != (tt.want != "") || got.Message != tt.want || ok && got.Reason != redisv1.ReasonContainerFailed {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}
