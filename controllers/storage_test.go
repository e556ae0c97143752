package controllers

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/redis/redistest"
)

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
	t.Parallel()
	s := newStorageStage(t, true, stored(2, 2, false))
	pods, claims, size := uids(s.pods()), uids(s.claims()), 64
	for _, landed := range []bool{false, true} {
		at := 0
		for s.sent = 0; s.sent >= at; {
			at++
			size += 64
			s.forgetOwner(s.cluster.UID) // what an earlier growth has left
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
		if at < 12 {
			t.Errorf("growing took only %d writes", s.sent)
		}
	}
}

// TestVolumesThatCannotGrow: the reason is said, all else goes on, and when the
// cause is mended, the volumes grow.
func TestVolumesThatCannotGrow(t *testing.T) {
	t.Parallel()
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
			for name := range s.pods() { // as if they had been rolled
				s.stamp(name, templateOf(s.sets()["orders-0"]))
			}
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
	t.Parallel()
	for name, c := range map[string]struct{ disturb, calm func(*storageStage) }{
		"a Pod is missing": {
			func(s *storageStage) { s.removePod("orders-0-1") },
			func(s *storageStage) { s.makePod(s.sets()["orders-0"], "orders-0-1", silent) },
		},
		"a Pod has another template": {
			func(s *storageStage) { s.stamp("orders-0-1", "old") },
			func(s *storageStage) {
				s.stamp("orders-0-1", s.pods()["orders-0-0"].Annotations[manifests.TemplateAnnotation])
			},
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

// stamp marks a Pod as made from a template.
func (s *storageStage) stamp(pod, template string) {
	s.Helper()
	p := s.pods()[pod]
	p.Annotations[manifests.TemplateAnnotation] = template
	s.must(s.admin.Update(s.Context(), p))
}

// TestAShardLosesNobodyWithItsStatefulSet: what the spec takes away in the moment
// in which there is no StatefulSet comes back with it, to be taken away in order.
func TestAShardLosesNobodyWithItsStatefulSet(t *testing.T) {
	t.Parallel()
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
