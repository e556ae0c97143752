package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// storageStage is a stage on which the test also does what Kubernetes' own
// controllers do for StatefulSets, claims and deletions; none of them runs there.
type storageStage struct {
	*stage
	class string
	// sent counts the operator's writes, and reads its reads of StorageClasses.
	sent, reads int
	// crashAt is the write at which the operator ends, 0 for none; landed tells
	// whether that write was still carried out.
	crashAt int
	landed  bool
	crashed bool
}

// silent is an address at which no server listens.
const silent = "127.255.255.254"

var errCrashed = errors.New("the operator has ended")

func newStorageStage(t *testing.T, expandable bool, spec redisv1.RedisClusterSpec) *storageStage {
	t.Helper()
	s := &storageStage{}
	b := newBench(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Provisioner: "test", AllowVolumeExpansion: &expandable}
	if err := b.admin.Create(t.Context(), class); err != nil {
		t.Fatalf("create a StorageClass: %v", err)
	}
	s.class = class.Name
	spec.Storage.StorageClassName = &class.Name
	s.stage = newStage(t, spec)
	s.start()
	for range 4 {
		s.must(s.pass())
		s.kubernetes()
	}
	return s
}

// stored is a spec with storage of 64Mi.
func stored(replicas, shards int32, retain bool) redisv1.RedisClusterSpec {
	return redisv1.RedisClusterSpec{Replicas: &replicas, Shards: &shards, Storage: &redisv1.StorageSpec{Size: resource.MustParse("64Mi"), Retain: &retain}}
}

func (s *storageStage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// start replaces the operator by one that remembers nothing. All its writes and
// its reads of StorageClasses are counted.
func (s *storageStage) start() {
	s.crashed = false
	write := func(do func() error) error {
		s.mu.Lock() // the operator writes in parallel
		defer s.mu.Unlock()
		if s.crashed {
			return errCrashed
		}
		s.sent++
		if s.crashed = s.sent == s.crashAt; s.crashed {
			if !s.landed {
				return errCrashed
			}
			return errors.Join(errCrashed, do())
		}
		return do()
	}
	c := interceptor.NewClient(s.admin, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write(func() error { return w.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return w.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write(func() error { return w.Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return write(func() error { return w.Apply(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return write(func() error { return w.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	live := interceptor.NewClient(s.admin, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*storagev1.StorageClass); ok {
				s.reads++
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	s.r = &RedisClusterReconciler{Client: c, APIReader: live, Recorder: discard{}, applier: &Applier{Client: c, APIReader: live}}
}

// edit changes the spec.
func (s *storageStage) edit(change func(*redisv1.RedisClusterSpec)) {
	s.Helper()
	s.get(s.cluster, s.cluster.Name)
	change(&s.cluster.Spec)
	s.must(s.admin.Update(s.Context(), s.cluster))
}

func (s *storageStage) growTo(size string) {
	s.Helper()
	s.edit(func(spec *redisv1.RedisClusterSpec) { spec.Storage.Size = resource.MustParse(size) })
}

func (s *storageStage) sets() map[string]*appsv1.StatefulSet {
	s.Helper()
	var list appsv1.StatefulSetList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.cluster.Namespace)))
	return byName(list.Items)
}

func (s *storageStage) pods() map[string]*corev1.Pod {
	s.Helper()
	var list corev1.PodList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.cluster.Namespace)))
	return byName(list.Items)
}

func (s *storageStage) claims() map[string]*corev1.PersistentVolumeClaim {
	s.Helper()
	var list corev1.PersistentVolumeClaimList
	s.must(s.admin.List(s.Context(), &list, client.InNamespace(s.cluster.Namespace)))
	return byName(list.Items)
}

// byName indexes the items of a list.
func byName[T any, P interface {
	*T
	client.Object
}](items []T) map[string]P {
	out := map[string]P{}
	for i := range items {
		out[P(&items[i]).GetName()] = &items[i]
	}
	return out
}

// kubernetes does once what the StatefulSet controller, the volumes' driver and
// the garbage collector would do.
func (s *storageStage) kubernetes() {
	s.Helper()
	for _, set := range s.sets() {
		if set.DeletionTimestamp.IsZero() {
			s.runSet(set)
		} else if slices.Contains(set.Finalizers, metav1.FinalizerOrphanDependents) {
			s.orphan(set)
		} else {
			s.Errorf("StatefulSet %s is deleted with its Pods", set.Name)
		}
	}
	for _, claim := range s.claims() {
		request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if has := claim.Status.Capacity[corev1.ResourceStorage]; claim.Status.Phase != corev1.ClaimBound || has.Cmp(request) < 0 {
			claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: request}
			s.must(s.admin.Status().Update(s.Context(), claim))
		}
	}
}

// runSet makes and adopts Pods and claims, and ties claims to the StatefulSet as
// its policy says.
func (s *storageStage) runSet(set *appsv1.StatefulSet) {
	s.Helper()
	pods, claims := s.pods(), s.claims()
	for ordinal := range int(*set.Spec.Replicas) {
		name := fmt.Sprintf("%s-%d", set.Name, ordinal)
		claim := claims["data-"+name]
		if claim == nil {
			template := set.Spec.VolumeClaimTemplates[0]
			claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Name: "data-" + name, Namespace: set.Namespace, Labels: template.Labels}, Spec: template.Spec}
			s.must(s.admin.Create(s.Context(), claim))
		}
		tied := set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		if tied != refersTo(claim, set.UID) {
			claim.OwnerReferences = without(claim.OwnerReferences, set.UID)
			if tied {
				claim.OwnerReferences = append(claim.OwnerReferences,
					metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID})
			}
			s.must(s.admin.Update(s.Context(), claim))
		}
		switch pod := pods[name]; {
		case pod == nil:
			s.makePod(set, name, silent)
		case metav1.GetControllerOf(pod) == nil:
			pod.OwnerReferences = append(pod.OwnerReferences, *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
			s.must(s.admin.Update(s.Context(), pod))
		}
	}
	if set.Status.ObservedGeneration != set.Generation {
		set.Status.ObservedGeneration, set.Status.Replicas = set.Generation, *set.Spec.Replicas
		s.must(s.admin.Status().Update(s.Context(), set))
	}
}

// orphan lets a StatefulSet go and its dependents stay.
func (s *storageStage) orphan(set *appsv1.StatefulSet) {
	s.Helper()
	for name, pod := range s.pods() {
		if !refersTo(pod, set.UID) {
			continue
		}
		if !refersTo(pod, s.cluster.UID) {
			s.Errorf("nobody would remove %s with its cluster", name)
		}
		pod.OwnerReferences = without(pod.OwnerReferences, set.UID)
		s.must(s.admin.Update(s.Context(), pod))
	}
	for name, claim := range s.claims() {
		if refersTo(claim, set.UID) {
			s.Errorf("%s still depends on StatefulSet %s, which is deleted", name, set.Name)
		}
	}
	set.Finalizers = nil
	s.must(s.admin.Update(s.Context(), set))
}

func without(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

func refersTo(o client.Object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// notGrown says what is not yet of a size, empty when nothing is left to do.
func (s *storageStage) notGrown(size string) string {
	s.Helper()
	want := resource.MustParse(size)
	for name, claim := range s.claims() {
		if request := claim.Spec.Resources.Requests[corev1.ResourceStorage]; request.Cmp(want) != 0 {
			return fmt.Sprintf("%s asks for %s", name, request.String())
		}
	}
	sets, pods := s.sets(), s.pods()
	if len(sets) != s.cluster.Spec.ShardCount() {
		return fmt.Sprintf("%d StatefulSets", len(sets))
	}
	for name, set := range sets {
		has, _ := templateSize(set)
		retain := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		if !*s.cluster.Spec.Storage.Retain {
			retain = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		}
		if policy := set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted; has.Cmp(want) != 0 || policy != retain || !set.DeletionTimestamp.IsZero() {
			return fmt.Sprintf("StatefulSet %s has %s, %s, deleted at %v", name, has.String(), policy, set.DeletionTimestamp)
		}
		for ordinal := range *set.Spec.Replicas {
			if p := pods[fmt.Sprintf("%s-%d", name, ordinal)]; p == nil || !metav1.IsControlledBy(p, set) {
				return fmt.Sprintf("Pod %d of %s is not its own", ordinal, name)
			}
		}
	}
	return ""
}

// passes runs passes, with Kubernetes after each, until the volumes have grown,
// and gives their number. An operator that ends is started anew.
func (s *storageStage) passes(size string) int {
	s.Helper()
	const limit = 60
	missing := ""
	for n := range limit {
		err := s.pass()
		if s.crashed {
			s.start()
		} else if err != nil {
			s.Fatal(err)
		}
		if deleted := s.deleted(); len(deleted) > 1 {
			s.Fatalf("StatefulSets %s are missing at once", deleted)
		}
		s.kubernetes()
		if missing = s.notGrown(size); missing == "" {
			return n + 1
		}
	}
	s.Fatalf("after %d passes %s", limit, missing)
	return 0
}

// deleted are the wanted StatefulSets that are gone or about to be.
func (s *storageStage) deleted() []string {
	var out []string
	sets := s.sets()
	for shard := range s.cluster.Spec.ShardCount() {
		name := manifests.ShardName(s.cluster, shard)
		if set := sets[name]; set == nil || !set.DeletionTimestamp.IsZero() {
			out = append(out, name)
		}
	}
	return out
}

func uids[P client.Object](objects map[string]P) map[string]types.UID {
	out := map[string]types.UID{}
	for name, o := range objects {
		out[name] = o.GetUID()
	}
	return out
}

// TestVolumesGrow: claims first, then one StatefulSet after the other; Pods and
// claims stay the ones that they were, and then there is nothing left to write.
func TestVolumesGrow(t *testing.T) {
	for _, retain := range []bool{true, false} {
		t.Run("retain "+strconv.FormatBool(retain), func(t *testing.T) {
			s := newStorageStage(t, true, stored(5, 2, retain))
			pods, claims, sets := uids(s.pods()), uids(s.claims()), uids(s.sets())
			if len(pods) != 5 || len(claims) != 5 || len(sets) != 2 {
				t.Fatalf("%d Pods, %d claims, %d StatefulSets", len(pods), len(claims), len(sets))
			}
			s.growTo("128Mi")
			s.sent = 0
			n := s.passes("128Mi")
			t.Logf("%d passes, %d writes", n, s.sent)
			if after := uids(s.pods()); !maps.Equal(pods, after) {
				t.Errorf("Pods were %v and are %v", pods, after)
			}
			if after := uids(s.claims()); !maps.Equal(claims, after) {
				t.Errorf("claims were %v and are %v", claims, after)
			}
			for name, uid := range uids(s.sets()) {
				if uid == sets[name] {
					t.Errorf("StatefulSet %s is the old one", name)
				}
			}
			s.must(s.pass())
			if s.sent, s.reads = 0, 0; s.pass() != nil || s.sent+s.reads > 0 {
				t.Errorf("%d writes and %d reads by a pass after the growth", s.sent, s.reads)
			}
			s.start()
			if s.sent = 0; s.pass() != nil || s.sent > 0 {
				t.Errorf("%d writes by a new operator", s.sent)
			}
		})
	}
}

// TestVolumesGrowThroughCrashes ends the operator at each of the writes that
// growing takes, before and after it was carried out. Claims that are not
// retained take the most.
func TestVolumesGrowThroughCrashes(t *testing.T) {
	s := newStorageStage(t, true, stored(2, 2, false))
	pods, claims, size := uids(s.pods()), uids(s.claims()), 64
	for _, landed := range []bool{false, true} {
		at := 0
		for s.sent = 0; s.sent >= at; {
			at++
			size += 64
			s.growTo(fmt.Sprintf("%dMi", size))
			s.sent, s.crashAt, s.landed = 0, at, landed
			s.passes(fmt.Sprintf("%dMi", size))
			if !maps.Equal(pods, uids(s.pods())) || !maps.Equal(claims, uids(s.claims())) {
				t.Errorf("write %d, carried out %t: Pods or claims are other ones", at, landed)
			}
			if s.must(s.pass()); s.deleted() != nil {
				t.Errorf("write %d, carried out %t: a grown cluster loses %s", at, landed, s.deleted())
			}
		}
		t.Logf("ended at each of %d writes, carried out: %t", at-1, landed)
		if at < 8 {
			t.Errorf("growing took only %d writes", s.sent)
		}
	}
}

// TestVolumesThatCannotGrow: the reason is said, all else goes on, and when the
// cause is mended, the volumes grow.
func TestVolumesThatCannotGrow(t *testing.T) {
	for _, c := range []struct {
		name        string
		expandable  bool
		block, mend func(*storageStage)
		reason      string
		words       []string
	}{
		{"the class does not allow it", false, func(*storageStage) {}, func(s *storageStage) { s.allow() },
			redisv1.ReasonStorageNotExpandable, []string{"class-", "allowVolumeExpansion: true", "64Mi", "128Mi"}},
		{"the class is gone", true, func(s *storageStage) {
			s.must(s.admin.Delete(s.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.class}}))
			s.r.memory.of(client.ObjectKeyFromObject(s.cluster), s.cluster.UID).checked = s.cluster.Generation
		}, func(s *storageStage) {
			yes := true
			s.must(s.admin.Create(s.Context(), &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: s.class}, Provisioner: "test", AllowVolumeExpansion: &yes}))
		}, redisv1.ReasonStorageNotExpandable, []string{"class-", "does not exist", "64Mi"}},
		{"a LimitRange forbids it", true, func(s *storageStage) {
			s.must(s.admin.Create(s.Context(), &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: s.cluster.Namespace},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim,
					Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Mi")}}}},
			}))
		}, func(s *storageStage) {
			s.must(s.admin.Delete(s.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: s.cluster.Namespace}}))
		}, redisv1.ReasonRejected, []string{"maximum storage usage", "100Mi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStorageStage(t, c.expandable, stored(2, 1, true))
			set := uids(s.sets())
			s.edit(func(spec *redisv1.RedisClusterSpec) {
				spec.Storage.Size, spec.PodLabels = resource.MustParse("128Mi"), map[string]redisv1.LabelValue{"team": "shop"}
			})
			c.block(s)
			redistest.Eventually(t, 20*time.Second, func() error { // the API server learns of a LimitRange after a moment
				s.must(s.pass())
				if ready := s.ready(); ready.Reason != c.reason {
					return fmt.Errorf("reason %s: %s", ready.Reason, ready.Message)
				}
				return nil
			})
			ready := s.ready()
			for _, word := range c.words {
				if !strings.Contains(ready.Message, word) {
					t.Errorf("the message does not say %q: %s", word, ready.Message)
				}
			}
			if got := s.sets()["orders-0"]; !maps.Equal(set, uids(s.sets())) || got.Spec.Template.Labels["team"] != "shop" {
				t.Errorf("the StatefulSet was made again, or did not get the other change: %v", got.Spec.Template.Labels)
			}
			if s.sent, s.reads = 0, 0; s.pass() != nil || s.sent+s.reads > 0 {
				t.Errorf("%d writes and %d reads by a pass soon after the refusal", s.sent, s.reads)
			}
			c.mend(s)
			redistest.Eventually(t, 20*time.Second, func() error {
				s.start()
				s.must(s.pass())
				if ready := s.ready(); ready.Reason == c.reason {
					return errors.New(ready.Message)
				}
				return nil
			})
			s.passes("128Mi")
		})
	}
}

// allow lets the volumes of the stage's StorageClass grow.
func (s *storageStage) allow() {
	s.Helper()
	class := &storagev1.StorageClass{}
	s.must(s.admin.Get(s.Context(), client.ObjectKey{Name: s.class}, class))
	yes := true
	class.AllowVolumeExpansion = &yes
	s.must(s.admin.Update(s.Context(), class))
}

// TestARefusalIsTriedAgain, without a restart, after its time.
func TestARefusalIsTriedAgain(t *testing.T) {
	s := newStorageStage(t, false, stored(2, 1, true))
	s.growTo("128Mi")
	s.must(s.pass())
	s.allow()
	s.must(s.pass())
	if missing := s.notGrown("128Mi"); !strings.Contains(missing, "asks for 64Mi") {
		t.Errorf("a refusal was not believed: %s", missing)
	}
	mem := s.r.memory.of(client.ObjectKeyFromObject(s.cluster), s.cluster.UID)
	mem.refused.at = mem.refused.at.Add(-growAgain)
	s.passes("128Mi")
	if mem.refused.problems != nil {
		t.Errorf("a refusal is remembered: %v", mem.refused.problems)
	}
}

// TestAShardWaitsForItsTurn: a StatefulSet stays as long as one of its Pods needs
// it, and grown claims stay grown.
func TestAShardWaitsForItsTurn(t *testing.T) {
	for name, c := range map[string]struct{ disturb, calm func(*storageStage) }{
		"a Pod is missing": {
			func(s *storageStage) { s.removePod("orders-0-1") },
			func(s *storageStage) { s.makePod(s.sets()["orders-0"], "orders-0-1", silent) },
		},
		"a Pod has another template": {
			func(s *storageStage) { s.label("orders-0-1", appsv1.ControllerRevisionHashLabelKey, "old") },
			func(s *storageStage) { s.label("orders-0-1", appsv1.ControllerRevisionHashLabelKey, "") },
		},
		"a Pod is one too many": {
			func(s *storageStage) { s.makePod(s.sets()["orders-0"], "orders-0-2", silent) },
			func(s *storageStage) { s.removePod("orders-0-2") },
		},
		"the StatefulSet's controller lags": {
			func(s *storageStage) {
				set := s.sets()["orders-0"]
				set.Status.ObservedGeneration--
				s.must(s.admin.Status().Update(s.Context(), set))
			},
			func(s *storageStage) { s.kubernetes() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorageStage(t, true, stored(2, 1, true))
			c.disturb(s)
			s.growTo("128Mi")
			for range 3 {
				s.must(s.pass())
			}
			for name, claim := range s.claims() {
				if request := claim.Spec.Resources.Requests[corev1.ResourceStorage]; request.String() != "128Mi" {
					t.Errorf("%s asks for %s", name, request.String())
				}
			}
			if gone := s.deleted(); gone != nil {
				t.Errorf("StatefulSets %s were deleted", gone)
			}
			c.calm(s)
			s.passes("128Mi")
		})
	}
}

func (s *storageStage) removePod(name string) {
	s.Helper()
	s.must(s.admin.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.cluster.Namespace}}, client.GracePeriodSeconds(0)))
}

func (s *storageStage) label(pod, key, value string) {
	s.Helper()
	p := s.pods()[pod]
	p.Labels[key] = value
	s.must(s.admin.Update(s.Context(), p))
}

// TestAShardLosesNobodyWithItsStatefulSet: what the spec takes away in the moment
// in which there is no StatefulSet comes back with it, to be taken away in order.
func TestAShardLosesNobodyWithItsStatefulSet(t *testing.T) {
	for name, c := range map[string]struct {
		replicas, shards int32
		gone             string
		want             int32
	}{
		"fewer members": {2, 2, "orders-0", 2},
		"fewer shards":  {2, 1, "orders-1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStorageStage(t, true, stored(4, 2, true))
			s.growTo("128Mi")
			for n := 0; s.sets()[c.gone] != nil; n++ {
				if n == 20 {
					t.Fatal("no StatefulSet was deleted")
				}
				s.must(s.pass())
				if s.kubernetes(); s.sets()[c.gone] == nil {
					break
				}
			}
			// Nobody owns the Pods now; one of them is lost on top.
			s.removePod(c.gone + "-0")
			s.edit(func(spec *redisv1.RedisClusterSpec) { spec.Replicas, spec.Shards = &c.replicas, &c.shards })
			s.start()
			s.must(s.pass())
			set := s.sets()[c.gone]
			if set == nil || *set.Spec.Replicas != c.want {
				t.Fatalf("the StatefulSet came back as %+v", set)
			}
			if s.cluster.Status.Replicas == 0 {
				t.Error("the Pods were not counted")
			}
		})
	}
}

// TestGrowthIsNotNoticed: real servers, and a status that calls the cluster whole
// in every pass, whoever owns the Pods.
func TestGrowthIsNotNoticed(t *testing.T) {
	s := newStorageStage(t, true, stored(4, 2, false))
	for name := range s.pods() {
		s.removePod(name)
	}
	s.runServers()
	redistest.Eventually(t, time.Minute, func() error {
		s.must(s.pass())
		if ready := s.ready(); s.cluster.Status.Phase != redisv1.PhaseRunning {
			return fmt.Errorf("%s: %s", s.cluster.Status.Phase, ready.Message)
		}
		return nil
	})
	pods := uids(s.pods())
	s.growTo("1Gi")
	for n := 0; s.notGrown("1Gi") != ""; n++ {
		if n == 40 {
			t.Fatalf("after %d passes %s", n, s.notGrown("1Gi"))
		}
		s.must(s.pass())
		if ready := s.ready(); s.cluster.Status.Phase != redisv1.PhaseRunning || s.cluster.Status.ReadyReplicas != 4 {
			t.Errorf("pass %d: %s, %d ready: %s", n, s.cluster.Status.Phase, s.cluster.Status.ReadyReplicas, ready.Message)
		}
		s.kubernetes()
	}
	if after := uids(s.pods()); !maps.Equal(pods, after) {
		t.Errorf("Pods were %v and are %v", pods, after)
	}
}

// TestAFailedResizeIsSaid, in words that do not change with every try.
func TestAFailedResizeIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		status corev1.PersistentVolumeClaimStatus
		want   string
	}{
		"resizing": {corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}}}, ""},
		"the driver failed": {corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
				Message: "request 0a1B2c3d-0000-4000-8000-0123456789ab: out of space"}}}, "ControllerResizeError: request …: out of space"},
		"the node failed": {corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: "resize2fs"}}}, "NodeResizeError: resize2fs"},
		"an error that is over": {corev1.PersistentVolumeClaimStatus{Conditions: []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionFalse}}}, ""},
		"infeasible": {corev1.PersistentVolumeClaimStatus{AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}}, "ControllerResizeInfeasible, see its Events"},
		"grown after all": {corev1.PersistentVolumeClaimStatus{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("128Mi")},
			Conditions: []corev1.PersistentVolumeClaimCondition{
				{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: "resize2fs"}}}, ""},
	} {
		claim := &corev1.PersistentVolumeClaim{Status: c.status}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("128Mi")}
		if got := resizeFailure(claim); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	s := newStorageStage(t, true, stored(2, 1, true))
	s.growTo("128Mi")
	s.must(s.pass())
	claim := s.claims()["data-orders-0-1"]
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
		Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "no space in the pool"}}
	s.must(s.admin.Status().Update(t.Context(), claim))
	s.must(s.pass())
	if c := s.ready(); c.Reason != redisv1.ReasonStorageResizeFailed || !strings.Contains(c.Message, claim.Name) || !strings.Contains(c.Message, "no space in the pool") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// TestWhoIsAMember: Pods of the cluster's StatefulSets, and those that have lost
// theirs, but nobody else's.
func TestWhoIsAMember(t *testing.T) {
	made := time.Now()
	cluster := &redisv1.RedisCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", UID: "cluster", CreationTimestamp: metav1.NewTime(made)}}
	p := &pass{cluster: cluster}
	sets := map[types.UID]bool{"ours": true, "theirs": false}
	for _, c := range []struct {
		name, pod, shard   string
		controller, called types.UID
		age                time.Duration
		want               bool
	}{
		{"of our StatefulSet", "orders-1-0", "1", "ours", "orders-1", 0, true},
		{"of a stranger's StatefulSet of our name", "orders-1-0", "1", "theirs", "orders-1", 0, false},
		{"of none", "orders-1-0", "1", "", "", 0, true},
		{"of none, by a name of another shard", "orders-2-0", "1", "", "", 0, false},
		{"of none, by a name that is none", "orders-x", "1", "", "", 0, false},
		{"of none, of a cluster whose name begins with ours", "orders-eu-1-0", "1", "", "", 0, false},
		{"of ours that is gone", "orders-1-0", "1", "gone", "orders-1", 0, true},
		{"of another that is gone", "orders-1-0", "1", "gone", "other", 0, false},
		{"of an earlier cluster's that is gone", "orders-1-0", "1", "gone", "orders-1", time.Hour, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.pod, Labels: map[string]string{redisv1.LabelShard: c.shard},
			CreationTimestamp: metav1.NewTime(made.Add(time.Minute - c.age))}}
		if yes := true; c.controller != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: string(c.called), UID: c.controller, Controller: &yes}}
		}
		if got := p.isMember(pod, sets); got != c.want {
			t.Errorf("a Pod %s: got %t, want %t", c.name, got, c.want)
		}
	}
}

// TestAWrittenClaimIsKnownBeforeTheCacheShowsIt, so that nothing is written twice.
func TestAWrittenClaimIsKnownBeforeTheCacheShowsIt(t *testing.T) {
	s := newStorageStage(t, true, stored(2, 1, true))
	before := s.claims()["data-orders-0-0"]
	s.growTo("128Mi")
	s.must(s.pass())
	mem := s.r.memory.of(client.ObjectKeyFromObject(s.cluster), s.cluster.UID)
	request := mem.latestClaim(before).Spec.Resources.Requests[corev1.ResourceStorage]
	if request.String() != "128Mi" {
		t.Errorf("a claim that was just written asks for %s", request.String())
	}
	if s.must(s.pass()); len(mem.grown) > 0 {
		t.Errorf("%d claims are remembered that the cache shows", len(mem.grown))
	}
	stale := before.DeepCopy()
	stale.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("128Mi")
	err := s.admin.Patch(t.Context(), stale, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if !apierrors.IsConflict(err) {
		t.Errorf("a write from a stale cache gave %v, want a conflict", err)
	}
}
