package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
	"github.com/example/redis-operator/internal/manifests"
	"github.com/example/redis-operator/internal/status"
)

// endOf is the condition that ended a Job, by success (Complete, or what Kubernetes says
// a second before it) or not (Failed); nil while it goes on.
func endOf(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailed) {
			return c
		}
	}
	return nil
}

// createOnce makes an object that is never changed. If one of its name exists, it has
// to be ours, which the cache does not show yet; what has another controller, or
// another mark (uidAnnotation), is a *NameConflictError. The cache never shows it,
// because it lacks our labels.
func createOnce(ctx context.Context, c client.Client, live client.Reader, o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return fmt.Errorf("create %s: %w", o.GetName(), err)
	}
	existing, isObject := o.DeepCopyObject().(client.Object)
	err = c.Create(ctx, o)
	if !isObject || !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("create %s %s: %w", gvk.Kind, o.GetName(), err)
		}
		return nil
	}
	owner, mark := controllerUID(existing), existing.GetAnnotations()[uidAnnotation]
	err = live.Get(ctx, client.ObjectKeyFromObject(o), existing)
	switch {
	case apierrors.IsNotFound(err): // the next pass makes it
		return nil
	case err != nil:
		return fmt.Errorf("get %s %s: %w", gvk.Kind, o.GetName(), err)
	case controllerUID(existing) != owner || existing.GetAnnotations()[uidAnnotation] != mark:
		return &NameConflictError{Kind: gvk.Kind, Name: o.GetName(), Leftover: existing.GetDeletionTimestamp() != nil}
	}
	return nil
}

// podsOf are the Pods of a Job, the latest first. They are read past the cache,
// which may show a Job's end before that of its Pod.
func podsOf(ctx context.Context, r client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)}); err != nil {
		return nil, fmt.Errorf("list Pods of Job %s: %w", job.Name, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return pods.Items, nil
}

// resultOf is what the tasks of a Job's Pods said last; nil if none said anything.
func resultOf(pods []corev1.Pod) *backup.Result {
	for i := range pods {
		for _, s := range pods[i].Status.ContainerStatuses {
			if s.Name != manifests.TaskContainer {
				continue
			}
			if result := resultIn(&s); result != nil {
				return result
			}
		}
	}
	return nil
}

// resultIn is what a task left when its container ended, this time or the last;
// nil if there is none, as when it was killed.
func resultIn(s *corev1.ContainerStatus) *backup.Result {
	for _, state := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		result := &backup.Result{}
		if state != nil && json.Unmarshal([]byte(state.Message), result) == nil {
			return result
		}
	}
	return nil
}

// taskProblem tells why the Pods of a task do not get to work, or what the last
// attempt said.
func taskProblem(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	pod := &pods[0]
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if problem, ok := waitProblem(pod, &s); ok {
			return problem.Message
		}
	}
	if problem, ok := scheduleProblem(pod); ok {
		return problem.Message
	}
	if result := resultOf(pods); result != nil && result.Reason != "" {
		return "the last attempt failed, and is made again: " + result.Message
	}
	return ""
}

// checkDestination looks live at what a destination refers to: Kubernetes would
// only leave the Pods waiting without a word. The problem is nil when all is there.
func checkDestination(ctx context.Context, r client.Reader, namespace string, d *redisv1.BackupDestination) (*status.Problem, error) {
	if claim := d.PersistentVolumeClaim; claim != nil {
		err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: claim.ClaimName}, &corev1.PersistentVolumeClaim{})
		switch {
		case apierrors.IsNotFound(err):
			return &status.Problem{Reason: redisv1.ReasonClaimNotFound, Message: fmt.Sprintf(
				"PersistentVolumeClaim %q of the destination does not exist: create it", claim.ClaimName)}, nil
		case err != nil:
			return nil, fmt.Errorf("get PersistentVolumeClaim %s: %w", claim.ClaimName, err)
		}
	}
	if s3 := d.S3; s3 != nil {
		problem, err := checkKeys(ctx, r, namespace, s3.CredentialsSecretName, redisv1.S3AccessKeyIDKey, redisv1.S3SecretAccessKeyKey)
		if err != nil || problem != nil || s3.CASecretName == "" {
			return problem, err
		}
		return checkKeys(ctx, r, namespace, s3.CASecretName, redisv1.S3CAKey)
	}
	return nil, nil
}

// checkKeys tells what a Secret lacks.
func checkKeys(ctx context.Context, r client.Reader, namespace, name string, keys ...string) (*status.Problem, error) {
	secret := &corev1.Secret{}
	err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &status.Problem{Reason: redisv1.ReasonSecretNotFound, Message: fmt.Sprintf(
			"Secret %q of the destination does not exist: create it with the keys %s", name, strings.Join(keys, " and "))}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return &status.Problem{Reason: redisv1.ReasonSecretInvalid, Message: fmt.Sprintf(
				"Secret %q of the destination has no key %q, or it is empty", name, key)}, nil
		}
	}
	return nil, nil
}

// OperatorImageVariable is the variable in which the manager finds its own image. It
// is named as those are that OLM lists as a bundle's images, and that tools which
// mirror a bundle rewrite.
const OperatorImageVariable = "RELATED_IMAGE_OPERATOR"

// noOperatorImage is the problem of an operator that cannot make Jobs of itself.
func noOperatorImage() *status.Problem {
	return &status.Problem{Reason: redisv1.ReasonNoOperatorImage,
		Message: "the operator does not know its own image, which backups and restores run in: set the variable " + OperatorImageVariable + " of its Deployment"}
}
