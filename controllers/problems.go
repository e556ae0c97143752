package controllers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
)

// unschedulableAfter is how long a Pod may be without a node before that is
// called a problem: with WaitForFirstConsumer volumes it is so for a moment.
const unschedulableAfter = 4 * time.Second

// waitReasons says what the kubelet's reasons for a waiting container mean.
var waitReasons = map[string]string{
	"ErrImagePull": redisv1.ReasonImagePullFailed, "ImagePullBackOff": redisv1.ReasonImagePullFailed,
	"InvalidImageName": redisv1.ReasonImagePullFailed, "ErrImageNeverPull": redisv1.ReasonImagePullFailed,
	"CreateContainerConfigError": redisv1.ReasonContainerFailed, "CreateContainerError": redisv1.ReasonContainerFailed,
	"RunContainerError": redisv1.ReasonContainerFailed, "CrashLoopBackOff": redisv1.ReasonContainerFailed,
}

// podProblems finds the Pods that do not start because of something that only a
// person can mend. One problem for each reason, the first Pod's message, so
// that a hundred Pods with one wrong image are one sentence.
func podProblems(pods map[string]*corev1.Pod) []status.Problem {
	var problems []status.Problem
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		p, ok := podProblem(pods[name])
		p.Pod = name
		if ok && !slices.ContainsFunc(problems, func(q status.Problem) bool { return q.Reason == p.Reason }) {
			problems = append(problems, p)
		}
	}
	return problems
}

func podProblem(pod *corev1.Pod) (status.Problem, bool) {
	if !pod.DeletionTimestamp.IsZero() {
		return status.Problem{}, false
	}
	if s := redisStatus(pod); s != nil {
		if problem, ok := containerProblem(pod, s); ok {
			return problem, true
		}
	}
	if s := manifests.SeedStatus(pod); s != nil {
		if problem, ok := seedProblem(pod, s); ok {
			return problem, true
		}
	}
	return scheduleProblem(pod)
}

// scheduleProblem tells why no node is found for a Pod.
func scheduleProblem(pod *corev1.Pod) (status.Problem, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && time.Since(c.LastTransitionTime.Time) > unschedulableAfter {
			return status.Problem{Reason: redisv1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %s: %s", pod.Name, c.Message)}, true
		}
	}
	return status.Problem{}, false
}

// containerProblem tells why a container does not start. A server that ends at
// each start passes through waiting, running and ended again and again: it is a
// problem in all of them, until one start has brought it to listen.
func containerProblem(pod *corev1.Pod, s *corev1.ContainerStatus) (status.Problem, bool) {
	ended := s.State.Terminated
	if ended == nil {
		ended = s.LastTerminationState.Terminated
	}
	listens := s.Started != nil && *s.Started
	if ended != nil && ended.ExitCode != 0 && !listens {
		return status.Problem{Reason: redisv1.ReasonContainerFailed, Message: fmt.Sprintf(
			"Pod %s: the server ended with code %d: %s", pod.Name, ended.ExitCode, lastLines(ended.Message))}, true
	}
	return waitProblem(pod, s)
}

// seedProblem tells why a Pod is not filled from the backup that its cluster starts
// from: what the last attempt said, or why there is none.
func seedProblem(pod *corev1.Pod, s *corev1.ContainerStatus) (status.Problem, bool) {
	if ended := s.State.Terminated; ended != nil && ended.ExitCode == 0 {
		return status.Problem{}, false
	}
	if result := resultIn(s); result != nil && result.Reason != "" {
		return status.Problem{Reason: string(result.Reason), Message: fmt.Sprintf("Pod %s is not filled from the backup: %s", pod.Name, result.Message)}, true
	}
	return waitProblem(pod, s)
}

// waitProblem tells why a container waits, if that needs a person.
func waitProblem(pod *corev1.Pod, s *corev1.ContainerStatus) (status.Problem, bool) {
	if s.State.Waiting == nil {
		return status.Problem{}, false
	}
	reason, ok := waitReasons[s.State.Waiting.Reason]
	message := fmt.Sprintf("Pod %s: %s", pod.Name, stable(s.State.Waiting.Message))
	switch {
	case reason != redisv1.ReasonImagePullFailed:
	case s.Name != manifests.RedisContainer:
		message = fmt.Sprintf("Pod %s: the image %s cannot be pulled with spec.imagePullSecrets of the cluster; the operator's own is the one of its variable %s", pod.Name, s.Image, OperatorImageVariable)
	default:
		message = fmt.Sprintf("Pod %s: the image %s cannot be pulled; check spec.version, spec.image and spec.imagePullSecrets", pod.Name, s.Image)
	}
	return status.Problem{Reason: reason, Message: message}, ok
}

// stable cuts from a kubelet's message what changes with every try.
func stable(message string) string {
	if i := strings.Index(message, "back-off "); i >= 0 {
		if j := strings.Index(message[i:], " restarting"); j >= 0 {
			return message[:i] + message[i+j+1:]
		}
	}
	return message
}

// logPrefix is the pid and time before a server's log line: they change with
// every start, and a status that held them would be written each time.
var logPrefix = regexp.MustCompile(`(?m)^\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ [#*.-] `)

// lastLines keeps the end of a server's output, where it says why it ended.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(logPrefix.ReplaceAllString(output, "")), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
