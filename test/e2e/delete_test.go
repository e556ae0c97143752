package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestDelete removes a cluster in each of the ways that kubectl knows. Nothing
// of any kind is left in the namespace, but claims that are to be retained.
func TestDelete(t *testing.T) {
	for _, c := range []struct {
		name, manifest string
		how            metav1.DeletionPropagation
		claims         int
	}{
		{"foreground", `{metadata: {name: orders}, spec: {replicas: 4}}`, metav1.DeletePropagationForeground, 0},
		{"background", `{metadata: {name: orders}, spec: {replicas: 4}}`, metav1.DeletePropagationBackground, 0},
		{"storage is retained by default", `{metadata: {name: orders}, spec: {replicas: 4, storage: {size: 64Mi}}}`, metav1.DeletePropagationBackground, 4},
		{"storage not retained, foreground", `{metadata: {name: orders}, spec: {replicas: 3, storage: {size: 64Mi, retain: false}}}`, metav1.DeletePropagationForeground, 0},
		{"storage not retained, background", `{metadata: {name: orders}, spec: {replicas: 3, storage: {size: 64Mi, retain: false}}}`, metav1.DeletePropagationBackground, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			u.remove(rc, client.PropagationPolicy(c.how))
			u.awaitEmpty(c.claims)
		})
	}
}

// TestDeleteOnTheWay deletes a cluster that is just being made.
func TestDeleteOnTheWay(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.create(`{metadata: {name: orders}, spec: {replicas: 6}}`)
	u.await(toRun, "the first Pod exists", func(ctx context.Context) (string, error) {
		pods, err := cluster.Pods(ctx, rc)
		if err != nil || len(pods) == 0 {
			return "there is none", err
		}
		return "", nil
	})
	u.remove(rc, client.PropagationPolicy(metav1.DeletePropagationForeground))
	u.awaitEmpty(0)
}

// awaitEmpty waits until nothing but a number of claims is left.
func (u *user) awaitEmpty(claims int) {
	u.Helper()
	u.await(toGo, "the namespace is empty", func(ctx context.Context) (string, error) {
		all, err := cluster.Inventory(ctx, u.ns)
		if err != nil {
			return "", err
		}
		kept := 0
		for name := range all {
			if strings.HasPrefix(name, "persistentvolumeclaims/data-orders-") {
				kept++
				delete(all, name)
			}
		}
		if len(all) > 0 {
			return "there are " + strings.Join(slices.Sorted(maps.Keys(all)), ", "), nil
		}
		if kept > claims {
			return "claims are still there", nil
		}
		if kept < claims {
			u.Fatalf("%d claims are left, want %d", kept, claims)
		}
		return "", nil
	})
}

// TestMadeAgain: a cluster made again under the same name finds what the first
// one left, and nodes keep their ids.
func TestMadeAgain(t *testing.T) {
	const manifest = `{metadata: {name: orders}, spec: {replicas: 4, storage: {size: 64Mi}}}`
	t.Run("after it is gone", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		rc := u.made(manifest)
		keys, before := u.fill(rc), ids(u.members(rc))
		u.remove(rc, client.PropagationPolicy(metav1.DeletePropagationForeground))
		u.awaitEmpty(4)
		u.findsItsData(u.made(manifest), keys, before)
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		u := newUser(t)
		rc := u.made(manifest)
		keys, before := u.fill(rc), ids(u.members(rc))
		u.remove(rc)
		u.await(toGo, "the object is gone", cluster.Gone(rc.DeepCopy()))
		u.findsItsData(u.made(manifest), keys, before)
	})
}

func (u *user) findsItsData(rc *redisv1.RedisCluster, keys, before map[string]string) {
	u.Helper()
	if after := ids(u.members(rc)); !maps.Equal(before, after) {
		u.Errorf("node ids were %v and are %v", before, after)
	}
	if lost := u.lost(rc, keys); len(lost) > 0 {
		u.Errorf("the keys of shards %s are lost", lost)
	}
	u.works(rc)
}
