package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// TestVolumesGrow raises storage.size under load. Claims, volumes and the
// StatefulSets' templates follow; no Pod is another one, and nothing is lost.
func TestVolumesGrow(t *testing.T) {
	for _, c := range []struct{ name, manifest string }{
		{"three shards", `{metadata: {name: orders}, spec: {replicas: 6, storage: {size: 64Mi}}}`},
		{"two shards, not retained, Valkey", `{metadata: {name: orders}, spec: {replicas: 4, engine: Valkey, version: "9.1", storage: {size: 64Mi, retain: false}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			rc := u.made(c.manifest)
			before := u.uids(rc)
			w := u.write(rc)
			for _, size := range []string{"128Mi", "1Gi"} {
				u.edit(rc, fmt.Sprintf("spec: {storage: {size: %s}}", size))
				u.awaitGrown(rc, size)
			}
			u.nothingLost(rc, w)
			u.awaitWhole(rc)
			if after := u.uids(rc); !maps.Equal(before, after) {
				t.Errorf("Pods and claims were %v and are %v", before, after)
			}
			// The StatefulSets that were made again go with their cluster like the
			// first.
			u.remove(rc)
			claims := 0
			if *rc.Spec.Storage.Retain {
				claims = rc.Spec.Nodes()
			}
			u.awaitEmpty(claims)
		})
	}
}

// uids are those of the cluster's Pods, with the number of their containers'
// restarts, and of its claims.
func (u *user) uids(c *redisv1.RedisCluster) map[string]string {
	u.Helper()
	all := map[string]string{}
	for name, pod := range u.pods(c) {
		all[name] = string(pod.UID)
		for _, s := range pod.Status.ContainerStatuses {
			all[name] += fmt.Sprintf(", %d restarts", s.RestartCount)
		}
	}
	claims, err := claimsOf(u.Context(), c)
	if err != nil {
		u.Fatal(err)
	}
	for _, claim := range claims {
		all[claim.Name] = string(claim.UID)
	}
	return all
}

func claimsOf(ctx context.Context, c *redisv1.RedisCluster) ([]corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	err := cluster.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": c.Name})
	return list.Items, err
}

func setsOf(ctx context.Context, c *redisv1.RedisCluster) ([]appsv1.StatefulSet, error) {
	var list appsv1.StatefulSetList
	err := cluster.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": c.Name})
	return list.Items, err
}

// awaitGrown waits until everything is of a size. Meanwhile the operator counts
// every Pod, whoever owns it, and all slots are served.
func (u *user) awaitGrown(c *redisv1.RedisCluster, size string) {
	u.Helper()
	u.await(time.Minute, c.Name+" has volumes of "+size, func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if int(c.Status.Replicas) != c.Spec.Nodes() || !meta.IsStatusConditionTrue(c.Status.Conditions, redisv1.ConditionAvailable) {
			u.Fatalf("while volumes grow, the status says %d nodes and %+v", c.Status.Replicas, c.Status.Conditions)
		}
		return notGrown(ctx, c, resource.MustParse(size))
	})
}

// notGrown says what is not of a size: a claim, its volume, a template. A
// StatefulSet that is being made again must have its Pods back too.
func notGrown(ctx context.Context, c *redisv1.RedisCluster, size resource.Quantity) (string, error) {
	claims, err := claimsOf(ctx, c)
	if err != nil {
		return "", err
	}
	for _, claim := range claims {
		var volume corev1.PersistentVolume
		if err := cluster.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume); err != nil {
			return "", err
		}
		for what, list := range map[string]corev1.ResourceList{
			"asks for": claim.Spec.Resources.Requests, "has": claim.Status.Capacity, "has a volume of": volume.Spec.Capacity,
		} {
			if has := list[corev1.ResourceStorage]; has.Cmp(size) != 0 {
				return fmt.Sprintf("%s %s %s", claim.Name, what, has.String()), nil
			}
		}
	}
	sets, err := setsOf(ctx, c)
	if err != nil {
		return "", err
	}
	if len(sets) != c.Spec.ShardCount() {
		return fmt.Sprintf("there are %d StatefulSets", len(sets)), nil
	}
	for _, set := range sets {
		has := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]
		if has.Cmp(size) != 0 || set.Status.ReadyReplicas != *set.Spec.Replicas {
			return fmt.Sprintf("StatefulSet %s has %s, and %d ready Pods of %d", set.Name, has.String(), set.Status.ReadyReplicas, *set.Spec.Replicas), nil
		}
	}
	return notOwned(ctx, c, sets)
}

// notOwned says which Pod or claim does not belong to one of the StatefulSets as
// it should: every Pod, and the claims that are not to be retained.
func notOwned(ctx context.Context, c *redisv1.RedisCluster, sets []appsv1.StatefulSet) (string, error) {
	owners := map[types.UID]bool{}
	for _, set := range sets {
		owners[set.UID] = true
	}
	owned := func(o client.Object) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return owners[r.UID] })
	}
	pods, err := cluster.Pods(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if !owned(&pods[i]) {
			return pods[i].Name + " belongs to no StatefulSet", nil
		}
	}
	claims, err := claimsOf(ctx, c)
	if err != nil {
		return "", err
	}
	for i := range claims {
		if owned(&claims[i]) == *c.Spec.Storage.Retain {
			return fmt.Sprintf("%s belongs to %v", claims[i].Name, claims[i].OwnerReferences), nil
		}
	}
	return "", nil
}

// TestDeletedWhileItGrows deletes a cluster in the moment in which nobody but the
// cluster itself owns some of its Pods. Nothing but its claims is left.
func TestDeletedWhileItGrows(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	rc := u.made(`{metadata: {name: orders}, spec: {replicas: 4, storage: {size: 64Mi}}}`)
	sets, err := cluster.Watch(t.Context(), &appsv1.StatefulSetList{}, client.InNamespace(u.ns))
	if err != nil {
		t.Fatalf("watch StatefulSets: %v", err)
	}
	defer sets.Stop()
	u.edit(rc, `spec: {storage: {size: 128Mi}}`)
	limit := time.After(time.Minute)
	for gone := false; !gone; {
		select {
		case e := <-sets.ResultChan():
			gone = e.Type == watch.Deleted
		case <-limit:
			t.Fatal("no StatefulSet was made again")
		}
	}
	u.remove(rc)
	u.awaitEmpty(4)
}

// TestVolumesThatCannotGrow: a StorageClass that does not allow it is named, all
// else goes on, and when it allows it, the volumes grow.
func TestVolumesThatCannotGrow(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	class := u.fixedClass()
	rc := u.made(fmt.Sprintf(`{metadata: {name: orders}, spec: {replicas: 4, storage: {size: 64Mi, storageClassName: %s}}}`, class.Name))
	before := u.uids(rc)
	w := u.write(rc)
	u.edit(rc, `spec: {storage: {size: 128Mi}}`)
	u.awaitReason(rc, promptly, redisv1.ConditionReady, metav1.ConditionFalse, redisv1.ReasonStorageNotExpandable,
		class.Name, "allowVolumeExpansion", "64Mi", "128Mi")
	u.awaitReason(rc, promptly, redisv1.ConditionDegraded, metav1.ConditionTrue, redisv1.ReasonStorageNotExpandable)
	u.Logf("the Event says: %s", u.awaitEvent(rc, redisv1.ReasonStorageNotExpandable))
	if missing, err := notGrown(t.Context(), rc, resource.MustParse("64Mi")); err != nil || missing != "" {
		t.Errorf("with a refused size %s, %v", missing, err)
	}
	if after := u.uids(rc); !maps.Equal(before, after) {
		t.Errorf("Pods and claims were %v and are %v", before, after)
	}
	// The cluster heals as ever.
	lost := u.pods(rc)
	maps.DeleteFunc(lost, func(name string, _ corev1.Pod) bool { return !strings.HasSuffix(name, "-1-0") })
	for _, pod := range lost {
		u.remove(&pod)
	}
	u.awaitReplaced(rc, lost)
	u.await(toHeal, "all nodes are ready again", func(ctx context.Context) (string, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(rc), rc); err != nil {
			return "", err
		}
		if rc.Status.ReadyReplicas != 4 {
			return fmt.Sprintf("%d are", rc.Status.ReadyReplicas), nil
		}
		return "", nil
	})
	yes := true
	class.AllowVolumeExpansion = &yes
	if err := cluster.Update(t.Context(), class); err != nil {
		t.Fatalf("let volumes of %s grow: %v", class.Name, err)
	}
	u.awaitRunning(rc)
	u.awaitGrown(rc, "128Mi")
	u.awaitWhole(rc)
	u.nothingLost(rc, w)
}

// fixedClass makes a StorageClass for this case alone, like the one of the
// devcluster whose volumes cannot grow.
func (u *user) fixedClass() *storagev1.StorageClass {
	u.Helper()
	var fixed storagev1.StorageClass
	if err := cluster.Get(u.Context(), client.ObjectKey{Name: "fixed"}, &fixed); err != nil {
		u.Fatalf("get the StorageClass fixed: %v", err)
	}
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: u.ns + "-fixed"}, Provisioner: fixed.Provisioner,
		ReclaimPolicy: fixed.ReclaimPolicy, VolumeBindingMode: fixed.VolumeBindingMode,
	}
	if err := cluster.Create(u.Context(), class); err != nil {
		u.Fatalf("create a StorageClass: %v", err)
	}
	u.Cleanup(func() {
		if err := cluster.Delete(context.Background(), class); err != nil { // that of the test has ended
			u.Errorf("delete StorageClass %s: %v", class.Name, err)
		}
	})
	return class
}
