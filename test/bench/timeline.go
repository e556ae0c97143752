package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// timeline is what happened in a run, as it was seen from outside. A nil one
// notes nothing.
type timeline struct {
	mu     sync.Mutex
	events []happening
	// said is what was last noted of each object.
	said map[string]string
}

type happening struct {
	at   time.Time
	what string
}

// timeline starts to note what happens to Pods, if that is asked for. It ends
// with the context.
func (b *bench) timeline(ctx context.Context) (*timeline, error) {
	if !b.verbose {
		return nil, nil
	}
	t := &timeline{said: map[string]string{}}
	w, err := b.Watch(ctx, &corev1.PodList{}, client.InNamespace(b.namespace))
	if err != nil {
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	go func() {
		defer w.Stop()
		// The end of the watch is the end of the run.
		_ = follow(ctx, w, func(pod *corev1.Pod) bool {
			t.once("Pod "+pod.Name, podState(pod))
			return false
		})
	}()
	return t, nil
}

func podState(pod *corev1.Pod) string {
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if s.State.Running != nil {
			return "has its container " + s.Name + " at work"
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return "has " + strings.ToLower(string(pod.Status.Phase))
	case !pod.DeletionTimestamp.IsZero():
		return "is being deleted"
	case kube.Ready(pod):
		return "is ready"
	case len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil:
		return "runs since " + pod.Status.ContainerStatuses[0].State.Running.StartedAt.Format(time.TimeOnly)
	case pod.Status.PodIP != "":
		return "has the address " + pod.Status.PodIP
	case pod.Spec.NodeName != "":
		return "is on " + pod.Spec.NodeName
	}
	return "exists"
}

// status notes what a RedisCluster says of itself.
func (t *timeline) status(c *redisv1.RedisCluster) {
	if t == nil {
		return
	}
	text := "phase " + string(c.Status.Phase)
	if ready := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionReady); ready != nil {
		text += fmt.Sprintf(", %d ready, %s: %s", c.Status.ReadyReplicas, ready.Reason, ready.Message)
	}
	if restored := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionRestored); restored != nil {
		text += fmt.Sprintf(", %s: %s", restored.Reason, restored.Message)
	}
	t.once("RedisCluster", text)
}

func (t *timeline) note(format string, arguments ...any) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, happening{time.Now(), fmt.Sprintf(format, arguments...)})
}

// once notes a state of an object unless it was noted last.
func (t *timeline) once(object, state string) {
	t.mu.Lock()
	known := t.said[object] == state
	t.said[object] = state
	t.mu.Unlock()
	if !known {
		t.note("%s %s", object, state)
	}
}

// requests adds the operator's requests, at the times that the API server noted.
func (t *timeline) requests(all []request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range all {
		if c := all[i].class(); c == read || c == change {
			t.events = append(t.events, happening{all[i].Received, "  request " + all[i].String()})
		}
	}
}

// print writes the timeline, with what the manager logged meanwhile.
func (t *timeline) print(b *bench, start time.Time) {
	logged, err := b.logged(start)
	if err != nil {
		b.progress("the manager's log is not in the timeline: %v", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.SortedStableFunc(slices.Values(append(logged, t.events...)), func(a, b happening) int { return a.at.Compare(b.at) })
	for _, h := range all {
		fmt.Fprintf(os.Stderr, "  %+8.3f s  %s\n", h.at.Sub(start).Seconds(), h.what)
	}
}

// logged are the manager's log lines about the namespace since a time.
func (b *bench) logged(since time.Time) ([]happening, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pod, err := b.Manager(ctx)
	if err != nil {
		return nil, err
	}
	from := metav1.NewTime(since)
	stream, err := b.Set.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{SinceTime: &from, Timestamps: true}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the manager's log: %w", err)
	}
	defer func() { _ = stream.Close() }() // it was only read
	var lines []happening
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		stamp, text, _ := strings.Cut(scanner.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		var line map[string]any
		if err != nil || !strings.Contains(text, b.namespace) || json.Unmarshal([]byte(text), &line) != nil {
			continue
		}
		what := []string{"  operator:", fmt.Sprint(line["msg"])}
		for _, field := range []string{"kind", "pod", "peer", "slots", "why", "error"} {
			if v, ok := line[field].(string); ok && v != "" {
				what = append(what, field+"="+v)
			}
		}
		lines = append(lines, happening{at, strings.Join(what, " ")})
	}
	return lines, scanner.Err()
}
