package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/test/kube"
)

// promptly is how soon a user hears what is wrong.
const promptly = 10 * time.Second

// blocked is a manifest that is admitted and cannot work.
type blocked struct {
	name, manifest string
	reason         string
	// words that the message must hold to be of help.
	words []string
	// mend makes it work.
	mend func(*user, *redisv1.RedisCluster)
}

var blockedCases = []blocked{
	{
		"no such image", `{metadata: {name: image}, spec: {replicas: 2, image: "localhost:1/none:1"}}`,
		redisv1.ReasonImagePullFailed, []string{"localhost:1/none:1", "image-", "spec.image"},
		func(u *user, c *redisv1.RedisCluster) { u.edit(c, `spec: {image: "docker.io/library/redis:8.0"}`) },
	},
	{
		"no such StorageClass", `{metadata: {name: storage}, spec: {replicas: 2, storage: {size: 64Mi, storageClassName: no-such-class}}}`,
		redisv1.ReasonStorageClassNotFound, []string{"no-such-class", "storageClassName"},
		func(u *user, c *redisv1.RedisCluster) { u.edit(c, `spec: {storage: {storageClassName: null}}`) },
	},
	{
		"no such Secret", `{metadata: {name: secret}, spec: {replicas: 2, auth: {secretName: to-come}}}`,
		redisv1.ReasonSecretNotFound, []string{"to-come", "password"},
		func(u *user, _ *redisv1.RedisCluster) {
			u.createSecret("to-come", map[string]string{"password": "late"})
		},
	},
	{
		"a Secret without the key", `{metadata: {name: invalid}, spec: {replicas: 2, auth: {secretName: other-keys}}}`,
		redisv1.ReasonSecretInvalid, []string{"other-keys", "password"},
		func(u *user, _ *redisv1.RedisCluster) {
			u.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: "other-keys"}})
			u.createSecret("other-keys", map[string]string{"password": "late"})
		},
	},
	{
		"no node fits", `{metadata: {name: nowhere}, spec: {replicas: 2, nodeSelector: {no-such-label: "true"}}}`,
		redisv1.ReasonUnschedulable, []string{"nowhere-"},
		func(u *user, c *redisv1.RedisCluster) { u.edit(c, `spec: {nodeSelector: null}`) },
	},
	{
		"a directive that the server does not know", `{metadata: {name: directive}, spec: {replicas: 2, config: {no-such-directive: "1"}}}`,
		redisv1.ReasonContainerFailed, []string{"directive-", "no-such-directive"},
		func(u *user, c *redisv1.RedisCluster) { u.edit(c, `spec: {config: null}`) },
	},
}

func (u *user) createSecret(name string, data map[string]string) {
	u.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: name}, StringData: data}
	if err := cluster.Create(u.Context(), secret); err != nil {
		u.Fatalf("create Secret %s: %v", name, err)
	}
}

// TestBlocked: the user hears within seconds what is wrong, the operator does
// not spin meanwhile, and once it is mended the cluster comes up by itself. It
// runs alone, because the operator's passes are counted for all clusters.
func TestBlocked(t *testing.T) {
	u := newUser(t)
	u.createSecret("other-keys", map[string]string{"passwort": "misspelled"})
	clusters := make([]*redisv1.RedisCluster, len(blockedCases))
	for i, b := range blockedCases {
		clusters[i] = u.create(b.manifest)
	}
	u.awaitReasons(clusters)
	for i, b := range blockedCases {
		u.awaitReason(clusters[i], promptly, redisv1.ConditionReady, metav1.ConditionFalse, b.reason, b.words...)
		u.Logf("%s: the Event says: %s", b.name, u.awaitEvent(clusters[i], b.reason))
		if n := clusters[i].Status.ReadyReplicas; n != 0 {
			u.Errorf("%s: readyReplicas is %d", b.name, n)
		}
	}
	u.noHotLoop(clusters)
	for i, b := range blockedCases {
		b.mend(u, clusters[i])
	}
	for _, c := range clusters {
		u.awaitRunning(c)
		u.awaitWhole(c)
		u.works(c)
	}
}

// awaitReasons waits for the reason of each case, and fails the case of those
// that took longer than a user should wait since the creation.
func (u *user) awaitReasons(clusters []*redisv1.RedisCluster) {
	u.Helper()
	told := map[int]bool{}
	u.await(time.Minute, "every cluster says what is wrong", func(ctx context.Context) (string, error) {
		missing := ""
		for i, b := range blockedCases {
			c := clusters[i]
			if told[i] {
				continue
			}
			if err := cluster.Get(ctx, keyOf(c), c); err != nil {
				return "", err
			}
			ready := meta.FindStatusCondition(c.Status.Conditions, redisv1.ConditionReady)
			if ready == nil || ready.Reason != b.reason {
				missing = fmt.Sprintf("%s: %+v", b.name, ready)
				continue
			}
			told[i] = true
			took := time.Since(c.CreationTimestamp.Time)
			u.Logf("%s: told after %.0f s: %s", b.name, took.Seconds(), ready.Message)
			if took > promptly+time.Second { // creationTimestamp has whole seconds
				u.Errorf("%s: it took %.0f s until the user was told", b.name, took.Seconds())
			}
		}
		return missing, nil
	})
}

// noHotLoop: while nothing can be done, statuses stay as they are and the
// operator makes few passes and requests.
func (u *user) noHotLoop(clusters []*redisv1.RedisCluster) {
	u.Helper()
	const (
		window = 30 * time.Second
		// The operator looks every 5 s whether what is missing is there, and when
		// the kubelet has tried again.
		passes = 12
		// A look is one GET; a few writes of Pods' messages may come on top.
		requests = 12
	)
	token := u.metricsToken()
	// The kubelet alternates between two reasons for an image that it cannot
	// pull; by now both have been seen.
	before := u.metrics(token)
	versions := u.versions(clusters)
	u.hold(window, "statuses stay as they are", func(ctx context.Context) (string, error) {
		for i, c := range clusters {
			fresh := c.DeepCopy()
			if err := cluster.Get(ctx, keyOf(c), fresh); err != nil {
				return "", err
			}
			if fresh.ResourceVersion != versions[i] {
				return fmt.Sprintf("%s was written to: %+v", c.Name, fresh.Status), nil
			}
		}
		return "", nil
	})
	after := u.metrics(token)
	for _, bar := range []struct {
		what, metric string
		labels       []string
		each         float64
	}{
		{"passes", "controller_runtime_reconcile_total", []string{`controller="rediscluster"`}, passes},
		{"errors", "controller_runtime_reconcile_errors_total", []string{`controller="rediscluster"`}, 0},
		{"requests", "rest_client_requests_total", nil, requests},
	} {
		n := (kube.Sum(after, bar.metric, bar.labels...) - kube.Sum(before, bar.metric, bar.labels...)) / float64(len(clusters))
		u.Logf("%.1f %s for each blocked cluster in %s", n, bar.what, window)
		if n > bar.each {
			u.Errorf("%.1f %s for each blocked cluster in %s, want at most %.0f", n, bar.what, window, bar.each)
		}
	}
}

// versions are the resourceVersions of clusters that have been quiet for a moment.
func (u *user) versions(clusters []*redisv1.RedisCluster) []string {
	u.Helper()
	const quiet = 6 * time.Second
	var last []string
	since := time.Now()
	u.await(time.Minute, "statuses settle", func(ctx context.Context) (string, error) {
		now := make([]string, len(clusters))
		for i, c := range clusters {
			if err := cluster.Get(ctx, keyOf(c), c); err != nil {
				return "", err
			}
			now[i] = c.ResourceVersion
		}
		if fmt.Sprint(now) != fmt.Sprint(last) {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return "they were written to a moment ago", nil
		}
		return "", nil
	})
	return last
}
