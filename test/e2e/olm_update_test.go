//go:build full

package e2e

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

const (
	// earlierImage is the operator of the release before, which must have been loaded.
	earlierImage = "redis-operator:v0.1.0"
	// templateAnnotation is a hash of what a Pod was made of.
	templateAnnotation = "redis.example.com/template"
)

// TestOLMUpdate: clusters that 0.1.0 has made go on under the next release, under
// writes, of which none is lost. A Pod stays as it is unless its template has changed,
// and then is replaced once.
func TestOLMUpdate(t *testing.T) {
	o := newOLM(t)
	o.targets = []string{o.ns}
	current := o.image
	o.image = earlierImage
	o.install(csvOf(t, "releases/v0.1.0"))
	clusters := []*redisv1.RedisCluster{
		o.create(`{metadata: {name: memory}, spec: {replicas: 6}}`),
		o.create(`{metadata: {name: disk}, spec: {replicas: 4, storage: {size: 64Mi}}}`),
		o.create(`{metadata: {name: valkey}, spec: {replicas: 2, engine: Valkey, version: "9.1"}}`),
	}
	var writers []*writer
	var templates []map[string]string
	var before []map[string]corev1.Pod
	for _, c := range clusters {
		o.awaitRunning(c)
		writers = append(writers, o.write(c))
		templates = append(templates, o.templates(c))
		before = append(before, o.pods(c))
	}
	o.image = current
	o.install(csvOf(t, "bundle"))
	for i, c := range clusters {
		// Before the new operator has looked, all seems well.
		since := time.Now()
		o.await(3*toHeal, c.Name+" has settled under the new operator", func(ctx context.Context) (string, error) {
			missing, err := o.unsettled(ctx, c)
			if err != nil || missing != "" {
				since = time.Now()
				return missing, err
			}
			if time.Since(since) < 20*time.Second {
				return "it has only just settled", nil
			}
			return "", nil
		})
		o.nothingLost(c, writers[i])
		now, changed := o.templates(c), 0
		for name, pod := range o.pods(c) {
			shard := pod.OwnerReferences[0].Name
			rolled := pod.UID != before[i][name].UID
			if rolled != (now[shard] != templates[i][shard]) {
				t.Errorf("%s was replaced: %t; its template was %s and is %s", name, rolled, templates[i][shard], now[shard])
			}
			if rolled {
				changed++
			}
		}
		t.Logf("%s: %d of %d Pods were replaced", c.Name, changed, len(before[i]))
		o.works(c)
	}
}

// templates are the hashes of the templates by StatefulSet.
func (u *user) templates(c *redisv1.RedisCluster) map[string]string {
	u.Helper()
	out, err := templatesOf(u.Context(), c)
	if err != nil {
		u.Fatal(err)
	}
	return out
}

func templatesOf(ctx context.Context, c *redisv1.RedisCluster) (map[string]string, error) {
	var sets appsv1.StatefulSetList
	if err := cluster.List(ctx, &sets, client.InNamespace(c.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": c.Name}); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, set := range sets.Items {
		out[set.Name] = set.Spec.Template.Annotations[templateAnnotation]
	}
	return out, nil
}

// unsettled tells what keeps a cluster from being Running with every Pod ready and on
// the template of its StatefulSet.
func (u *user) unsettled(ctx context.Context, c *redisv1.RedisCluster) (string, error) {
	if err := cluster.Get(ctx, keyOf(c), c); err != nil {
		return "", err
	}
	if missing := notRunning(c); missing != "" {
		return missing, nil
	}
	templates, err := templatesOf(ctx, c)
	if err != nil {
		return "", err
	}
	pods, err := cluster.Pods(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if !kube.Ready(&pods[i]) || pods[i].Annotations[templateAnnotation] != templates[pods[i].OwnerReferences[0].Name] {
			return pods[i].Name + " is not ready, or on an older template", nil
		}
	}
	return "", nil
}
