package e2e

import (
	"slices"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestOLMExamples: what a console offers works, with a bucket of this case's own.
func TestOLMExamples(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	store, err := cluster.StartStore(t.Context(), u.ns)
	if err != nil {
		t.Fatal(err)
	}
	u.newClaim("backups")
	clusters, backups := examplesOf(t, csvOf(t, "bundle"))
	for _, b := range backups {
		b.Namespace = u.ns
		if b.Spec.Destination.S3 != nil {
			b.Spec.Destination = store.Destination()
		}
	}
	for _, c := range clusters {
		c.Namespace = u.ns
		if c.Spec.Backup != nil {
			c.Spec.Backup.Destination = store.Destination()
		}
		if err := cluster.Create(t.Context(), c); err != nil {
			t.Fatalf("create %s: %v", c.Name, err)
		}
		u.awaitRunningFor(c, 2*toBackup)
		u.works(c)
		for _, b := range backups {
			if b.Spec.ClusterName != c.Name {
				continue
			}
			if err := cluster.Create(t.Context(), b); err != nil {
				t.Fatalf("create %s: %v", b.Name, err)
			}
			u.succeeds(b)
		}
		u.remove(c) // one after the other: together they are 25 Pods
	}
}

// examplesOf are the examples of a bundle, those that are restored last.
func examplesOf(t *testing.T, csv *v1alpha1.ClusterServiceVersion) ([]*redisv1.RedisCluster, []*redisv1.RedisBackup) {
	t.Helper()
	var kinds []metav1.TypeMeta
	var clusters []*redisv1.RedisCluster
	var backups []*redisv1.RedisBackup
	examples := []byte(csv.Annotations["alm-examples"])
	var all []map[string]any
	if err := yaml.Unmarshal(examples, &kinds); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(examples, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		data, err := yaml.Marshal(all[i])
		if err != nil {
			t.Fatal(err)
		}
		var o any
		switch kinds[i].Kind {
		case "RedisCluster":
			c := &redisv1.RedisCluster{}
			clusters, o = append(clusters, c), c
		case "RedisBackup":
			b := &redisv1.RedisBackup{}
			backups, o = append(backups, b), b
		default:
			t.Fatalf("an example is a %s", kinds[i].Kind)
		}
		if err := yaml.UnmarshalStrict(data, o); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortStableFunc(clusters, func(a, b *redisv1.RedisCluster) int {
		switch {
		case (a.Spec.RestoreFrom == nil) == (b.Spec.RestoreFrom == nil):
			return 0
		case a.Spec.RestoreFrom == nil:
			return -1
		}
		return 1
	})
	return clusters, backups
}
