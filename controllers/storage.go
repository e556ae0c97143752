package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
	"github.com/example/redis-operator/internal/topology"
)

// Volumes grow in three steps, each found anew in every pass from the claims
// and StatefulSets that there are, so that a pass may end after any of them:
//
//  1. The claims of the wanted members ask for spec.storage.size. The volumes'
//     own driver does the rest, while the Pods run.
//  2. The claim template of a StatefulSet cannot be changed. Once all claims of
//     a shard ask for the new size, its StatefulSet is deleted without its Pods.
//  3. The ordinary apply makes it again, with the new template. It adopts the
//     Pods, which never noticed.
const (
	// growAgain is how long a refusal to grow is believed. Nothing tells when a
	// StorageClass or a quota changes, and two looks a minute are cheap.
	growAgain = 30 * time.Second
	// growInterval is the beat while claims and StatefulSets are on their way.
	growInterval = time.Second
	// tieOwner is the field owner of what tie writes.
	tieOwner = client.FieldOwner("redis-operator-tie")
)

// refusedGrowth is why claims could not grow, when that was last tried.
type refusedGrowth struct {
	generation int64
	at         time.Time
	problems   []status.Problem
}

// growStorage takes the steps that are due. What stands in the way becomes a
// problem and stops nothing else: the data is where it was.
func (p *pass) growStorage(ctx context.Context) error {
	if p.cluster.Spec.Storage == nil {
		return nil
	}
	if err := p.growClaims(ctx); err != nil {
		return err
	}
	p.facts.Problems = append(p.facts.Problems, p.resizeProblems()...)
	return p.releaseShard(ctx)
}

// growClaims lets every claim that asks for less than the spec ask for that,
// where its StorageClass allows it.
func (p *pass) growClaims(ctx context.Context) error {
	small := p.smallClaims()
	if len(small) == 0 {
		p.mem.refused = refusedGrowth{}
		return nil
	}
	if r := p.mem.refused; r.generation == p.cluster.Generation && time.Since(r.at) < growAgain {
		p.facts.Problems = append(p.facts.Problems, r.problems...)
		return nil
	}
	var problems []status.Problem
	for _, class := range slices.Sorted(maps.Keys(small)) {
		problem, err := p.checkExpansion(ctx, class, small[class])
		if err != nil {
			return err
		}
		if problem == nil {
			problem, err = p.enlarge(ctx, small[class])
			if err != nil {
				return err
			}
		}
		if problem != nil {
			problems = append(problems, *problem)
		}
	}
	if len(problems) > 0 {
		p.mem.refused = refusedGrowth{generation: p.cluster.Generation, at: time.Now(), problems: problems}
	}
	p.facts.Problems = append(p.facts.Problems, problems...)
	return nil
}

// smallClaims are the claims of wanted members that ask for less than the spec,
// by StorageClass. Kubernetes lets only a claim that has its volume grow.
func (p *pass) smallClaims() map[string][]*corev1.PersistentVolumeClaim {
	small := map[string][]*corev1.PersistentVolumeClaim{}
	for shard, members := range p.facts.Desired.Members {
		for ordinal := range members {
			claim := p.kube.claims[member{shard, ordinal}]
			if claim == nil || !p.lags(claim) || !claim.DeletionTimestamp.IsZero() {
				continue
			}
			class := ""
			if claim.Spec.StorageClassName != nil {
				class = *claim.Spec.StorageClassName
			}
			small[class] = append(small[class], claim)
		}
	}
	return small
}

// lags tells whether a claim has a volume and asks for less than the spec.
func (p *pass) lags(claim *corev1.PersistentVolumeClaim) bool {
	request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return claim.Status.Phase == corev1.ClaimBound && request.Cmp(p.cluster.Spec.Storage.Size) < 0
}

// checkExpansion gives a problem if a StorageClass does not let its volumes grow.
func (p *pass) checkExpansion(ctx context.Context, name string, claims []*corev1.PersistentVolumeClaim) (*status.Problem, error) {
	class := &storagev1.StorageClass{}
	has, wants := claims[0].Spec.Resources.Requests[corev1.ResourceStorage], p.cluster.Spec.Storage.Size
	why := fmt.Sprintf("StorageClass %q does not let volumes grow", name)
	if name == "" {
		why = fmt.Sprintf("PersistentVolumeClaim %s has no StorageClass, which alone could let its volume grow", claims[0].Name)
	} else {
		err := p.r.APIReader.Get(ctx, types.NamespacedName{Name: name}, class)
		switch {
		case apierrors.IsNotFound(err):
			why = fmt.Sprintf("StorageClass %q, which alone could let volumes grow, does not exist any more", name)
		case apierrors.IsForbidden(err):
			return nil, nil // a namespaced install may not read StorageClasses: the API server's answer to the claim tells
		case err != nil:
			return nil, fmt.Errorf("get StorageClass %s: %w", name, err)
		case class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion:
			return nil, nil
		}
	}
	return &status.Problem{Reason: redisv1.ReasonStorageNotExpandable, Message: fmt.Sprintf(
		"%s: volumes stay at %s although spec.storage.size is %s, and all else goes on; set allowVolumeExpansion: true in the StorageClass "+
			"if its driver can resize volumes, or move the data to a new cluster with another class", why, has.String(), wants.String())}, nil
}

// enlarge lets claims ask for the size of the spec, all at once. A refusal, as
// by a quota, becomes a problem.
func (p *pass) enlarge(ctx context.Context, claims []*corev1.PersistentVolumeClaim) (*status.Problem, error) {
	p.growing = true
	var steps []func() error
	grown := make([]*corev1.PersistentVolumeClaim, len(claims))
	for i, claim := range claims {
		grown[i] = claim.DeepCopy()
		grown[i].Spec.Resources.Requests[corev1.ResourceStorage] = p.cluster.Spec.Storage.Size
		// The lock keeps a size that somebody has just raised further.
		base := client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})
		steps = append(steps, func() error { return p.r.Client.Patch(ctx, grown[i], base, client.FieldOwner(FieldOwner)) })
	}
	var (
		problem *status.Problem
		failed  []error
		done    int
	)
	for i, err := range atOnce(steps) {
		refused, ok := refusal(err)
		switch {
		case err == nil:
			p.noteGrown(ctx, grown[i])
			done++
		case ok:
			problem = &refused
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err): // the next pass sees what it is now
			failed = append(failed, fmt.Errorf("grow PersistentVolumeClaim %s: %w", claims[i].Name, err))
		}
	}
	if done > 0 {
		p.events = append(p.events, news{corev1.EventTypeNormal, redisv1.EventVolumesGrow, "Grow",
			fmt.Sprintf("%d volumes are to grow to %s", done, p.cluster.Spec.Storage.Size.String())})
	}
	return problem, errors.Join(failed...)
}

// noteGrown keeps a claim as it was just written, for this pass and until the
// cache shows it.
func (p *pass) noteGrown(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	log.FromContext(ctx).Info("claim grows", "claim", claim.Name, "size", p.cluster.Spec.Storage.Size.String())
	p.mem.grown[claim.UID] = claim
	if m, ok := p.memberOfClaim(claim.Name); ok {
		p.kube.claims[m] = claim
	}
}

// volatileID is what drivers put into messages and change with every try.
var volatileID = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// resizeProblems tells of the first wanted claim whose volume could not be made
// as large as it asks for. The driver goes on trying by itself.
func (p *pass) resizeProblems() []status.Problem {
	for shard, members := range p.facts.Desired.Members {
		for ordinal := range members {
			claim := p.kube.claims[member{shard, ordinal}]
			if claim == nil {
				continue
			}
			if why := resizeFailure(claim); why != "" {
				return []status.Problem{{Reason: redisv1.ReasonStorageResizeFailed, Message: fmt.Sprintf(
					"the volume of PersistentVolumeClaim %s cannot be grown: %s; its data is where it was", claim.Name, why)}}
			}
		}
	}
	return nil
}

// resizeFailure is what a claim says of a volume that does not grow; empty when
// it says nothing, or has what it asks for.
func resizeFailure(claim *corev1.PersistentVolumeClaim) string {
	request, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if has.Cmp(request) >= 0 {
		return ""
	}
	for _, c := range claim.Status.Conditions {
		failed := c.Type == corev1.PersistentVolumeClaimControllerResizeError || c.Type == corev1.PersistentVolumeClaimNodeResizeError
		if failed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("%s: %s", c.Type, volatileID.ReplaceAllString(c.Message, "…"))
		}
	}
	switch s := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; s {
	case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return fmt.Sprintf("%s, see its Events", s)
	}
	return ""
}

// fitClaims makes a StatefulSet's intent one that the API server takes: with the
// claim template that the StatefulSet has, which cannot be changed. Before its
// StatefulSet is deleted, a shard's claims must not depend on it: should the
// garbage collector not know yet that they do, it would remove them with it.
func (p *pass) fitClaims(shard int, intent *appsv1ac.StatefulSetApplyConfiguration) {
	set := p.kube.statefulSets[shard]
	if p.cluster.Spec.Storage == nil || set == nil {
		return
	}
	has, ok := templateSize(set)
	if !ok || has.Cmp(p.cluster.Spec.Storage.Size) >= 0 {
		return
	}
	*intent.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: has}
	if p.claimsGrown(shard) {
		intent.Spec.PersistentVolumeClaimRetentionPolicy.WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	}
}

// templateSize is the size in a StatefulSet's claim template.
func templateSize(set *appsv1.StatefulSet) (resource.Quantity, bool) {
	for i := range set.Spec.VolumeClaimTemplates {
		if t := &set.Spec.VolumeClaimTemplates[i]; t.Name == manifests.DataVolume {
			return t.Spec.Resources.Requests[corev1.ResourceStorage], true
		}
	}
	return resource.Quantity{}, false
}

// claimsGrown tells whether all claims of a shard that can grow have done so.
func (p *pass) claimsGrown(shard int) bool {
	for m, claim := range p.kube.claims {
		if m.shard == shard && m.ordinal < p.facts.Desired.Members[shard] && p.lags(claim) {
			return false
		}
	}
	return true
}

// releaseShard deletes the StatefulSet of one shard, without its Pods, if its
// claim template is smaller than its claims: the apply of a later pass makes it
// again. One at a time, so that whatever happens in between, to this operator or
// to a Pod, touches one shard.
func (p *pass) releaseShard(ctx context.Context) error {
	for shard := range p.facts.Desired.Members {
		set := p.kube.statefulSets[shard]
		if set == nil || !set.DeletionTimestamp.IsZero() || set.UID == p.mem.released {
			p.growing = true
			return nil
		}
	}
	// A StatefulSet that is made again has the newest Pod template at once; during
	// a roll it may not be the shard's turn yet.
	if slices.ContainsFunc(p.facts.Observed.Nodes, func(n topology.Node) bool { return n.Outdated }) {
		return nil
	}
	for shard := range p.facts.Desired.Members {
		set := p.kube.statefulSets[shard]
		has, ok := templateSize(set)
		if !ok || has.Cmp(p.cluster.Spec.Storage.Size) >= 0 || !p.claimsGrown(shard) {
			continue
		}
		p.growing = true
		if !p.releasable(shard, set) {
			continue
		}
		return p.release(ctx, shard, set)
	}
	return nil
}

// release deletes a StatefulSet without its Pods. A conflict, with what happened
// to it or to a Pod since the cache saw them, is left to the next pass.
func (p *pass) release(ctx context.Context, shard int, set *appsv1.StatefulSet) error {
	err := p.tie(ctx, shard, set)
	if err == nil {
		err = p.r.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.Preconditions{UID: &set.UID})
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete StatefulSet %s without its Pods: %w", set.Name, err)
	}
	log.FromContext(ctx).Info("StatefulSet is made again with a larger claim template", "statefulSet", set.Name)
	p.mem.released = set.UID
	return nil
}

func dependsOn(o metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// tie makes what depends on a StatefulSet alone, its Pods and revisions, depend on
// the RedisCluster too: if that is deleted while there is no StatefulSet, the
// garbage collector still finds them. Claims it must not find.
func (p *pass) tie(ctx context.Context, shard int, set *appsv1.StatefulSet) error {
	c := p.cluster
	owner := func() *metav1ac.OwnerReferenceApplyConfiguration { // the answer to an apply is read into it
		return metav1ac.OwnerReference().WithAPIVersion(redisv1.GroupVersion.String()).WithKind("RedisCluster").WithName(c.Name).WithUID(c.UID)
	}
	var intents []runtime.ApplyConfiguration
	for ordinal := range p.facts.Desired.Members[shard] {
		if pod := p.kube.pods[manifests.PodName(c, shard, ordinal)]; !dependsOn(pod, c.UID) {
			intents = append(intents, corev1ac.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithOwnerReferences(owner()))
		}
	}
	var revisions appsv1.ControllerRevisionList
	if err := p.r.APIReader.List(ctx, &revisions, client.InNamespace(c.Namespace), client.MatchingLabels(manifests.ShardSelector(c, shard))); err != nil {
		return fmt.Errorf("list ControllerRevisions: %w", err)
	}
	for i := range revisions.Items {
		if r := &revisions.Items[i]; controllerUID(r) == set.UID && !dependsOn(r, c.UID) {
			intents = append(intents, appsv1ac.ControllerRevision(r.Name, r.Namespace).WithUID(r.UID).WithOwnerReferences(owner()))
		}
	}
	for _, intent := range intents {
		if err := p.r.Client.Apply(ctx, intent, tieOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("make it a dependent of its cluster: %w", err)
		}
	}
	return nil
}

// releasable tells whether a StatefulSet can be done without for a moment. Its
// Pods live on in any case; but one that is just being replaced, rolled or taken
// away would wait for it.
func (p *pass) releasable(shard int, set *appsv1.StatefulSet) bool {
	members := p.facts.Desired.Members[shard]
	if set.Status.ObservedGeneration != set.Generation || set.Spec.Replicas == nil || int(*set.Spec.Replicas) != members {
		return false
	}
	for i := range p.facts.Observed.Nodes {
		if n := &p.facts.Observed.Nodes[i]; n.Shard == shard && (n.Ordinal >= members || n.Ending || n.Doomed) {
			return false
		}
	}
	for ordinal := range members {
		pod := p.kube.pods[manifests.PodName(p.cluster, shard, ordinal)]
		claim := p.kube.claims[member{shard, ordinal}]
		if pod == nil || controllerUID(pod) != set.UID || claim != nil && dependsOn(claim, set.UID) {
			return false
		}
	}
	return true
}

// isMember tells whether a Pod is one of the cluster's, given the StatefulSets
// that there are, by UID, with whether they are the cluster's. While a StatefulSet
// is made again its Pods have no controller, or one that is gone; they are members
// all the same.
func (p *pass) isMember(pod *corev1.Pod, sets map[types.UID]bool) bool {
	m, ok := p.memberOf(pod.Name)
	if !ok {
		return false
	}
	controller := metav1.GetControllerOf(pod)
	if controller != nil {
		if ours, exists := sets[controller.UID]; exists {
			return ours
		}
	}
	if pod.Labels[redisv1.LabelShard] != strconv.Itoa(m.shard) {
		return false
	}
	// A Pod without a controller: Kubernetes gives it to the StatefulSet of its
	// name and labels as soon as there is one. One whose controller is gone is to
	// be removed by the garbage collector. If it is older than the cluster, it is
	// what an earlier cluster of this name left, and none of ours.
	return controller == nil || controller.Kind == "StatefulSet" && controller.Name == manifests.ShardName(p.cluster, m.shard) &&
		pod.CreationTimestamp.After(p.cluster.CreationTimestamp.Time)
}
