package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// Explain is what a person would look at when something in a namespace did not
// become as it should: the RedisClusters, their Pods, Events, what Redis says,
// and what the manager logged about the namespace. What cannot be read is said
// in its place.
func (k *Kube) Explain(ctx context.Context, namespace string) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var b strings.Builder
	title := func(s string) { fmt.Fprintf(&b, "--- %s\n", s) }
	k.explainClusters(ctx, namespace, &b, title)
	k.explainPods(ctx, namespace, &b, title)
	title("Events")
	var events eventsv1.EventList
	if err := k.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, e := range events.Items {
		fmt.Fprintf(&b, "%s %s %s %s/%s: %s\n", e.EventTime.Format(time.TimeOnly), e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)
	}
	title("the manager's log of this namespace")
	lines, err := k.ManagerLog(ctx, namespace, 150)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	b.WriteString(strings.Join(lines, "\n") + "\n")
	return b.String()
}

func (k *Kube) explainClusters(ctx context.Context, namespace string, b *strings.Builder, title func(string)) {
	var clusters redisv1.RedisClusterList
	if err := k.List(ctx, &clusters, client.InNamespace(namespace)); err != nil {
		fmt.Fprintln(b, err)
		return
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		title("RedisCluster " + c.Name)
		c.ManagedFields = nil
		if data, err := yaml.Marshal(c); err == nil {
			b.Write(data)
		}
		k.explainNodes(ctx, c, b, title)
	}
}

func (k *Kube) explainNodes(ctx context.Context, c *redisv1.RedisCluster, b *strings.Builder, title func(string)) {
	password, err := k.Password(ctx, c)
	if err != nil {
		fmt.Fprintln(b, err)
		return
	}
	pods, err := k.Pods(ctx, c)
	if err != nil {
		fmt.Fprintln(b, err)
		return
	}
	for i := range pods {
		title("CLUSTER NODES of " + pods[i].Name)
		if pods[i].Status.PodIP == "" {
			continue
		}
		node := Dial(pods[i].Status.PodIP, password)
		table, err := node.ClusterNodes(ctx).Result()
		if err != nil {
			table = err.Error() + "\n"
		}
		b.WriteString(table)
		_ = node.Close() // nothing is pending on it
	}
}

func (k *Kube) explainPods(ctx context.Context, namespace string, b *strings.Builder, title func(string)) {
	title("Pods")
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		fmt.Fprintln(b, err)
		return
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		fmt.Fprintf(b, "%s phase=%s ready=%t ip=%s node=%s role=%s deleted=%t", p.Name, p.Status.Phase, Ready(p), p.Status.PodIP,
			p.Spec.NodeName, p.Labels[redisv1.LabelRole], !p.DeletionTimestamp.IsZero())
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil {
				fmt.Fprintf(b, " waiting=%s: %s", w.Reason, w.Message)
			}
			if t := s.LastTerminationState.Terminated; t != nil {
				fmt.Fprintf(b, " ended with %d: %s", t.ExitCode, t.Message)
			}
		}
		b.WriteByte('\n')
	}
}
