package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
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

func (s *storageStage) revisions() map[string]*appsv1.ControllerRevision {
	s.Helper()
	var list appsv1.ControllerRevisionList
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
	pods, claims, revisions := s.pods(), s.claims(), s.revisions()
	own := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	switch revision := revisions[set.Name+"-first"]; {
	case revision == nil:
		revision = &appsv1.ControllerRevision{Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"a":1}`)}, ObjectMeta: metav1.ObjectMeta{
			Name: set.Name + "-first", Namespace: set.Namespace, Labels: set.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{own}}}
		s.must(s.admin.Create(s.Context(), revision))
	case metav1.GetControllerOf(revision) == nil:
		revision.OwnerReferences = append(revision.OwnerReferences, own)
		s.must(s.admin.Update(s.Context(), revision))
	}
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
		if tied != dependsOn(claim, set.UID) {
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
			pod.OwnerReferences = append(pod.OwnerReferences, own)
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
	for _, o := range s.dependents(set.UID) {
		if r, ok := o.(*appsv1.ControllerRevision); ok && (r.Revision != 1 || string(r.Data.Raw) != `{"a":1}`) {
			s.Errorf("the revision was changed: %+v", r)
		}
		if !dependsOn(o, s.cluster.UID) {
			s.Errorf("nobody would remove %s with its cluster", o.GetName())
		}
	}
	s.forgetOwner(set.UID)
	for name, claim := range s.claims() {
		if dependsOn(claim, set.UID) {
			s.Errorf("%s still depends on StatefulSet %s, which is deleted", name, set.Name)
		}
	}
	set.Finalizers = nil
	s.must(s.admin.Update(s.Context(), set))
}

// dependents are the Pods and revisions with an owner.
func (s *storageStage) dependents(owner types.UID) []client.Object {
	s.Helper()
	var out []client.Object
	for _, pod := range s.pods() {
		out = append(out, pod)
	}
	for _, revision := range s.revisions() {
		out = append(out, revision)
	}
	return slices.DeleteFunc(out, func(o client.Object) bool { return !dependsOn(o, owner) })
}

// forgetOwner takes an owner away from its Pods and revisions.
func (s *storageStage) forgetOwner(owner types.UID) {
	s.Helper()
	for _, o := range s.dependents(owner) {
		o.SetOwnerReferences(without(o.GetOwnerReferences(), owner))
		s.must(s.admin.Update(s.Context(), o))
	}
}

func without(refs []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool { return r.UID == uid })
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
