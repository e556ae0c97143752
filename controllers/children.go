package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
)

// ensureChildren applies every object that the cluster is made of. Names that
// a stranger holds, references to what does not exist and refusals of the API
// server become problems, not errors: trying again at once would not help.
func (p *pass) ensureChildren(ctx context.Context) error {
	if p.cluster.Spec.Paused {
		return nil
	}
	if ok, err := p.checkReferences(ctx); err != nil || !ok {
		return err
	}
	c := p.cluster
	// The Pods mount the first group; making it first spares them a retry of
	// the kubelet.
	first := []func() error{
		func() error { return p.ensureSecrets(ctx) },
		func() error {
			return p.applyConfigMap(ctx)
		},
		func() error {
			return p.apply(ctx, &corev1.Service{}, manifests.HeadlessServiceName(c), manifests.HeadlessService(c))
		},
	}
	var sets []func() error
	rest := []func() error{
		func() error { return p.apply(ctx, &networkingv1.NetworkPolicy{}, c.Name, manifests.NetworkPolicy(c)) },
	}
	if p.facts.Desired.Seeds == 0 { // clients are let in when the backup is in its place
		rest = append(rest, func() error { return p.apply(ctx, &corev1.Service{}, c.Name, manifests.ClientService(c)) })
	}
	for shard, members := range p.shards() {
		name := manifests.ShardName(c, shard)
		sets = append(sets, func() error {
			intent, err := p.statefulSet(shard, members)
			if err != nil {
				return err
			}
			return p.apply(ctx, &appsv1.StatefulSet{}, name, intent)
		})
		rest = append(rest, func() error {
			return p.apply(ctx, &policyv1.PodDisruptionBudget{}, name, manifests.PodDisruptionBudget(c, shard))
		})
	}
	for _, group := range [][]func() error{first, sets, rest} {
		if err := p.applyAll(group); err != nil || len(p.facts.Problems) > 0 && len(p.kube.statefulSets) == 0 && len(p.kube.pods) == 0 {
			return err
		}
	}
	return p.growStorage(ctx)
}

// shards are the members that each shard's StatefulSet is given: never fewer than
// it has, because taking nodes away needs their data moved first. A shard of a
// backup has one to be filled. Volumes that an
// earlier cluster of this name has left are all started, wanted or not: what is on
// them is seen before anything is decided about it.
func (p *pass) shards() map[int]int {
	out := map[int]int{}
	for shard, members := range p.facts.Desired.Members {
		out[shard] = members
	}
	for shard := range p.facts.Desired.Seeds {
		out[shard] = max(out[shard], 1)
	}
	for m, claim := range p.kube.claims {
		if p.kube.statefulSets[m.shard] == nil && claim.DeletionTimestamp == nil {
			out[m.shard] = max(out[m.shard], m.ordinal+1)
		}
	}
	for shard, set := range p.kube.statefulSets {
		if set.DeletionTimestamp == nil && set.Spec.Replicas != nil {
			out[shard] = max(out[shard], int(*set.Spec.Replicas))
		}
	}
	return out
}

// applyAll runs steps in parallel. A refusal becomes a problem.
func (p *pass) applyAll(steps []func() error) error {
	errs := atOnce(steps)
	var failed []error
	for _, err := range errs {
		if problem, ok := refusal(err); ok {
			p.facts.Problems = append([]status.Problem{problem}, p.facts.Problems...)
		} else if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// together runs steps in parallel and joins their errors.
func together(steps []func() error) error { return errors.Join(atOnce(steps)...) }

func atOnce(steps []func() error) []error {
	errs := make([]error, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() { errs[i] = step() })
	}
	wg.Wait()
	return errs
}

// refusal tells whether an error is the API server's final word on an object,
// and what to tell the user.
func refusal(err error) (status.Problem, bool) {
	var conflict *NameConflictError
	switch {
	case errors.As(err, &conflict) && !conflict.Leftover:
		return status.Problem{Reason: redisv1.ReasonNameConflict, Message: fmt.Sprintf(
			"%s %q exists and belongs to somebody else; it is left alone: delete it or take another name", conflict.Kind, conflict.Name)}, true
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return status.Problem{Reason: redisv1.ReasonRejected, Message: "the API server refuses an object that is needed: " + err.Error()}, true
	}
	return status.Problem{}, false
}

// checkReferences looks live at what the spec refers to: when the spec is new
// and, because nothing watches these objects, as long as something is missing.
// Kubernetes itself would only leave the Pods waiting without a word.
func (p *pass) checkReferences(ctx context.Context) (bool, error) {
	if p.mem.checked == p.cluster.Generation {
		return true, nil
	}
	var problems []status.Problem
	if auth := p.cluster.Spec.Auth; auth != nil && auth.SecretName != "" {
		problem, err := p.checkAuthSecret(ctx, auth.SecretName)
		if err != nil {
			return false, err
		}
		problems = append(problems, problem...)
	}
	if st := p.cluster.Spec.Storage; st != nil && st.StorageClassName != nil {
		err := p.r.APIReader.Get(ctx, types.NamespacedName{Name: *st.StorageClassName}, &storagev1.StorageClass{})
		switch {
		case apierrors.IsNotFound(err):
			problems = append(problems, status.Problem{Reason: redisv1.ReasonStorageClassNotFound, Message: fmt.Sprintf(
				"StorageClass %q of spec.storage.storageClassName does not exist: create it or name another", *st.StorageClassName)})
		case err != nil && !apierrors.IsForbidden(err): // a namespaced install may not read StorageClasses
			return false, fmt.Errorf("get StorageClass %s: %w", *st.StorageClassName, err)
		}
	}
	if len(problems) == 0 {
		p.mem.checked = p.cluster.Generation
	}
	p.facts.Problems = append(problems, p.facts.Problems...)
	return len(problems) == 0, nil
}

func (p *pass) checkAuthSecret(ctx context.Context, name string) ([]status.Problem, error) {
	secret := &corev1.Secret{}
	err := p.r.APIReader.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return []status.Problem{{Reason: redisv1.ReasonSecretNotFound, Message: fmt.Sprintf(
			"Secret %q of spec.auth.secretName does not exist: create it with the key %q", name, redisv1.AuthPasswordKey)}}, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	case len(secret.Data[redisv1.AuthPasswordKey]) == 0:
		return []status.Problem{{Reason: redisv1.ReasonSecretInvalid, Message: fmt.Sprintf(
			"Secret %q of spec.auth.secretName has no key %q, or it is empty", name, redisv1.AuthPasswordKey)}}, nil
	}
	return nil, nil
}

// apply brings one object to the intent. cached is an empty object of its kind.
func (p *pass) apply(ctx context.Context, cached client.Object, name string, intent runtime.ApplyConfiguration) error {
	err := p.r.Client.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: name}, cached)
	switch {
	case apierrors.IsNotFound(err):
		cached = nil
	case err != nil:
		return fmt.Errorf("get %s: %w", name, err)
	}
	_, err = p.r.applier.Apply(ctx, p.cluster, cached, intent)
	return err
}

// ensureSecrets makes the Secrets that do not exist, and reads the password of
// the operator's user: once, and again after a node refused it.
func (p *pass) ensureSecrets(ctx context.Context) error {
	if p.mem.password != "" {
		return nil
	}
	if c := p.cluster; !c.Spec.AuthDisabled() && c.AuthSecretName() == manifests.AuthSecretName(c) {
		if _, err := p.r.applier.EnsureSecret(ctx, c, manifests.AuthSecret(c, manifests.NewPassword())); err != nil {
			return err
		}
	}
	secret, err := p.r.applier.EnsureSecret(ctx, p.cluster, manifests.OperatorSecret(p.cluster, manifests.NewPassword()))
	if err != nil {
		return err
	}
	p.mem.password = string(secret.Data[manifests.OperatorPasswordKey])
	return nil
}

func isControlledBy(o metav1.Object, uid types.UID) bool { return controllerUID(o) == uid }

// controllerUID is the UID of an object's controller; empty when it has none.
func controllerUID(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.UID
	}
	return ""
}
