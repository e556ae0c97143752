package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/topology"
)

// statefulSet is what a shard's StatefulSet should be now. A new template goes
// to one shard at a time: a Pod that is made again for another reason comes up on
// its StatefulSet's template, and if that does not work, it must not happen in
// every shard.
func (p *pass) statefulSet(shard, members int) (*appsv1ac.StatefulSetApplyConfiguration, error) {
	intent := manifests.StatefulSet(p.cluster, shard, members, p.restarts())
	p.fitClaims(shard, intent)
	restoring := p.facts.Desired.Seeds > 0 // nothing is served that a wrong template could harm
	if p.seeding != nil && shard < p.facts.Desired.Seeds {
		p.seeding.Seed(intent, p.cluster, shard)
	}
	set := p.kube.statefulSets[shard]
	if set == nil || restoring || templateOf(set) == hashOf(intent) || p.mayTakeTemplate(shard) {
		return intent, nil
	}
	present, err := appliedStatefulSet(set)
	if err != nil {
		return nil, err
	}
	intent.Spec.Template = present.Spec.Template
	return intent, nil
}

// mayTakeTemplate tells whether it is a shard's turn: all Pods of the shards
// before it are made from the present template and ready. A shard none of whose
// Pods runs has nothing to lose.
func (p *pass) mayTakeTemplate(shard int) bool {
	runs := false
	for name, pod := range p.kube.pods {
		m, _ := p.memberOf(name)
		runs = runs || m.shard == shard && running(pod)
	}
	if !runs {
		return true
	}
	for name, pod := range p.kube.pods {
		m, _ := p.memberOf(name)
		if m.shard < shard && m.shard < len(p.facts.Desired.Members) && (p.outdated(pod, m.shard) || !podReady(pod)) {
			return false
		}
	}
	return true
}

// outdated tells whether a Pod was made from another template than its shard
// should have.
func (p *pass) outdated(pod *corev1.Pod, shard int) bool {
	return pod.Annotations[manifests.TemplateAnnotation] != p.wantedTemplate(shard)
}

// wantedTemplate is the hash of the template that a shard should have.
func (p *pass) wantedTemplate(shard int) string {
	if p.templates == nil {
		p.templates = map[int]string{}
	}
	hash, ok := p.templates[shard]
	if !ok {
		hash = hashOf(manifests.StatefulSet(p.cluster, shard, 1, p.restarts()))
		p.templates[shard] = hash
	}
	return hash
}

func hashOf(intent *appsv1ac.StatefulSetApplyConfiguration) string {
	return intent.Spec.Template.Annotations[manifests.TemplateAnnotation]
}

func templateOf(set *appsv1.StatefulSet) string {
	return set.Spec.Template.Annotations[manifests.TemplateAnnotation]
}

// appliedStatefulSet is what the operator has applied to a StatefulSet.
func appliedStatefulSet(set *appsv1.StatefulSet) (*appsv1ac.StatefulSetApplyConfiguration, error) {
	like := reflect.TypeFor[appsv1ac.StatefulSetApplyConfiguration]()
	data, err := ownedFields(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), FieldOwner, like)
	if err != nil {
		return nil, err
	}
	applied := &appsv1ac.StatefulSetApplyConfiguration{}
	if err := json.Unmarshal(data, applied); err != nil {
		return nil, fmt.Errorf("decode what was applied to StatefulSet %s: %w", set.Name, err)
	}
	if applied.Spec == nil || applied.Spec.Template == nil {
		return nil, fmt.Errorf("StatefulSet %s has no template of the operator", set.Name)
	}
	return applied, nil
}

// replace has a Pod made anew by its StatefulSet. It is evicted, so that a
// disruption budget is the one lock against everybody else who takes Pods away.
// A Pod that is its whole shard goes only after the status has said so.
func (p *pass) replace(ctx context.Context, a topology.Action) error {
	m, _ := p.memberOf(a.Pod)
	set, pod := p.kube.statefulSets[m.shard], p.kube.pods[a.Pod]
	if set == nil || pod == nil {
		return nil
	}
	// Its controller would make the Pod from the template that it has seen.
	if templateOf(set) != p.wantedTemplate(m.shard) || set.Status.ObservedGeneration != set.Generation {
		return nil
	}
	if a.Alone && !p.announced() {
		return nil
	}
	return p.evict(ctx, pod)
}

// announced tells whether the status says what the plan is about to do.
func (p *pass) announced() bool {
	latest := p.mem.latestStatus(p.cluster)
	c := meta.FindStatusCondition(latest.Conditions, redisv1.ConditionDegraded)
	return c != nil && c.Reason == redisv1.ReasonInterruptionAhead && c.Message == p.facts.Plan.Why && c.ObservedGeneration == p.cluster.Generation
}

// evict asks for a Pod's deletion. A budget that does not allow it now is no
// error: the next pass asks again.
func (p *pass) evict(ctx context.Context, pod *corev1.Pod) error {
	if time.Since(p.mem.evicted[pod.UID]) < cacheLag {
		return nil
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	err := p.r.Client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case apierrors.IsTooManyRequests(err):
		log.FromContext(ctx).Info("the disruption budget does not allow an eviction now", "pod", pod.Name)
		return nil
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		return fmt.Errorf("evict Pod %s: %w", pod.Name, err)
	}
	maps.DeleteFunc(p.mem.evicted, func(_ types.UID, at time.Time) bool { return time.Since(at) > cacheLag })
	p.mem.evicted[pod.UID] = time.Now()
	return nil
}

// renew deletes the Pod of a node that may start without the data that it had.
// Its start guard holds it, so that it serves nobody and a budget has no say.
func (p *pass) renew(ctx context.Context, a topology.Action) error {
	pod := p.kube.pods[a.Pod]
	if pod == nil {
		return nil
	}
	return p.deletePod(ctx, pod)
}

func (p *pass) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := p.r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete Pod %s: %w", pod.Name, err)
	}
	return nil
}

// replaceBrokenPods deletes Pods that never got going on a template that has
// been corrected since. With OnDelete nobody else does. Nothing runs in such a
// Pod, so nothing is lost with it.
func (p *pass) replaceBrokenPods(ctx context.Context) error {
	var errs []error
	for shard, set := range p.kube.statefulSets {
		if set.Status.ObservedGeneration != set.Generation {
			continue // its controller would use the template of before
		}
		for _, pod := range p.kube.pods {
			if controllerUID(pod) != set.UID || !pod.DeletionTimestamp.IsZero() || running(pod) ||
				pod.Annotations[manifests.TemplateAnnotation] == templateOf(set) || templateOf(set) != p.wantedTemplate(shard) {
				continue
			}
			errs = append(errs, p.deletePod(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// removeNodes takes Pods away that are not wanted any more. The volumes go first:
// they vanish with their Pods, and a pass that finds a volume on its way goes on
// with the removal, whatever was wanted since.
func (p *pass) removeNodes(ctx context.Context, actions []topology.Action) error {
	byShard := map[int][]int{}
	for _, a := range actions {
		if m, ok := p.memberOf(a.Pod); ok {
			byShard[m.shard] = append(byShard[m.shard], m.ordinal)
		}
	}
	var errs []error
	for shard, ordinals := range byShard {
		if err := p.removeMembers(ctx, shard, ordinals); err != nil {
			errs = append(errs, fmt.Errorf("remove nodes of shard %d: %w", shard, err))
		}
	}
	return errors.Join(errs...)
}

func (p *pass) removeMembers(ctx context.Context, shard int, ordinals []int) error {
	if gone, err := p.removeClaims(ctx, shard, ordinals); err != nil || !gone {
		return err // the next pass has seen that the volumes go
	}
	stay := 0 // the Pods that a StatefulSet keeps are its first ones
	for i := range p.facts.Observed.Nodes {
		n := &p.facts.Observed.Nodes[i]
		if n.Shard == shard && !slices.Contains(ordinals, n.Ordinal) && !n.Ending {
			stay = max(stay, n.Ordinal+1)
		}
	}
	set := p.kube.statefulSets[shard]
	if stay == 0 {
		return p.removeShard(ctx, shard, set)
	}
	for _, ordinal := range ordinals {
		if pod := p.kube.pods[manifests.PodName(p.cluster, shard, ordinal)]; pod != nil && ordinal < stay {
			if err := p.evict(ctx, pod); err != nil {
				return err
			}
		}
	}
	if set == nil || set.Spec.Replicas != nil && int(*set.Spec.Replicas) <= stay {
		return nil
	}
	intent, err := p.statefulSet(shard, stay)
	if err != nil {
		return err
	}
	return p.apply(ctx, &appsv1.StatefulSet{}, set.Name, intent)
}

// removeClaims deletes the claims of members that go, and tells whether all of them
// were seen to be on their way, or are no more.
func (p *pass) removeClaims(ctx context.Context, shard int, ordinals []int) (bool, error) {
	gone := true
	for _, ordinal := range ordinals {
		claim := p.kube.claims[member{shard, ordinal}]
		if claim == nil || claim.DeletionTimestamp != nil {
			continue
		}
		gone = false
		if err := deleteExactly(ctx, p.r.Client, claim); err != nil {
			return false, err
		}
	}
	return gone, nil
}

// removeShard deletes the objects of a shard that has no member left.
func (p *pass) removeShard(ctx context.Context, shard int, set *appsv1.StatefulSet) error {
	if set != nil {
		if err := deleteExactly(ctx, p.r.Client, set); err != nil {
			return err
		}
	}
	budget := &policyv1.PodDisruptionBudget{}
	err := p.r.Client.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: manifests.ShardName(p.cluster, shard)}, budget)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get PodDisruptionBudget of shard %d: %w", shard, err)
	case !isControlledBy(budget, p.cluster.UID):
		return nil
	}
	return deleteExactly(ctx, p.r.Client, budget)
}

// deleteExactly deletes the object that was looked at, and no other of its name.
func deleteExactly(ctx context.Context, c client.Client, o client.Object) error {
	uid := o.GetUID()
	err := c.Delete(ctx, o, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return nil
}
