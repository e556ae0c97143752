package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// provisionedBy is the annotation in which the library notes who made a volume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// resizer does what an external resizer does for claims that ask for more than
// they have. A folder has no size, so growing one is a matter of two objects.
// That a claim may grow at all the API server has checked: by its StorageClass.
type resizer struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newResizer(client kubernetes.Interface) *resizer {
	return &resizer{client: client, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, 5*time.Second))}
}

// run blocks until the context ends.
func (r *resizer) run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(r.client, 0)
	informer := factory.Core().V1().PersistentVolumeClaims().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.seen,
		UpdateFunc: func(_, o any) { r.seen(o) },
	}); err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	for r.next(ctx) {
	}
	return nil
}

// seen queues a claim that asks for more than it has.
func (r *resizer) seen(o any) {
	if claim, ok := o.(*corev1.PersistentVolumeClaim); ok && wantsMore(claim) {
		r.queue.Add(cache.MetaObjectToName(claim))
	}
}

// next works on one claim; false when the queue has ended.
func (r *resizer) next(ctx context.Context) bool {
	key, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(key)
	if err := r.resize(ctx, key); err != nil {
		fmt.Fprintln(os.Stderr, "resizer:", err)
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

// resize raises the capacity of the volume, then that of the claim: whoever sees
// the second may rely on the first.
func (r *resizer) resize(ctx context.Context, key cache.ObjectName) error {
	claims := r.client.CoreV1().PersistentVolumeClaims(key.Namespace)
	claim, err := claims.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get claim %s: %w", key, err)
	}
	if !wantsMore(claim) {
		return nil
	}
	volumes := r.client.CoreV1().PersistentVolumes()
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume of claim %s: %w", key, err)
	}
	if volume.Annotations[provisionedBy] != name {
		return nil
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := volume.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) < 0 {
		volume.Spec.Capacity[corev1.ResourceStorage] = size
		if _, err := volumes.Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("grow volume %s: %w", volume.Name, err)
		}
	}
	claim.Status.Capacity[corev1.ResourceStorage] = size
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("tell claim %s its size: %w", key, err)
	}
	return nil
}

// wantsMore tells whether a claim has a volume that is smaller than it asks for.
func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	size, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	return claim.Status.Phase == corev1.ClaimBound && has.Cmp(size) < 0
}
