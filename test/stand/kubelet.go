//go:build linux

package stand

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/example/redis-operator/internal/manifests"
)

// kubelet runs a server for each Pod and reports on it.
type kubelet struct{ *Stand }

// probing is the beat of a Pod's readiness probe until it is ready, and later: seldom, so
// that what is measured at rest is the operator's work. The end of a server is seen at
// once.
const (
	probing = 250 * time.Millisecond
	looking = 20 * time.Second
)

// Reconcile is one look at one Pod.
func (k *kubelet) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := &corev1.Pod{}
	if err := k.client.Get(ctx, req.NamespacedName, object); err != nil {
		if p := k.pod(req.NamespacedName); p != nil && client.IgnoreNotFound(err) == nil { // deleted by force
			p.kill()
			k.forget(p)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if redisContainer(object) == nil || object.Spec.NodeName != NodeName {
		return ctrl.Result{}, nil
	}
	p := k.pod(req.NamespacedName)
	if p != nil && p.uid != object.UID { // deleted by force, and made again
		p.kill()
		k.forget(p)
		p = nil
	}
	if object.DeletionTimestamp != nil {
		k.end(ctx, p, object)
		return ctrl.Result{}, nil
	}
	if p == nil {
		var err error
		if p, err = k.prepare(ctx, object); err != nil {
			return ctrl.Result{RequeueAfter: probing}, err
		}
	}
	if err := p.keepRunning(); err != nil {
		return ctrl.Result{}, err
	}
	ready := p.ready(ctx)
	if err := k.report(ctx, object, p, ready); err != nil {
		return ctrl.Result{}, err
	}
	if !ready {
		return ctrl.Result{RequeueAfter: probing}, nil
	}
	return ctrl.Result{RequeueAfter: looking}, nil
}

// end ends a Pod as a kubelet does: preStop, SIGTERM, and then the object goes. It does
// not wait for that.
func (k *kubelet) end(ctx context.Context, p *pod, object *corev1.Pod) {
	if p == nil {
		return // it is on its way
	}
	k.forget(p)
	go func() {
		p.terminate()
		now := &client.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &object.UID}}
		_ = k.client.Delete(context.WithoutCancel(ctx), object, now) // it may be gone already
	}()
}

// prepare gives a Pod an address, and its volumes what the objects hold that it mounts.
func (k *kubelet) prepare(ctx context.Context, object *corev1.Pod) (*pod, error) {
	name := client.ObjectKeyFromObject(object)
	container := redisContainer(object)
	p := &pod{name: name, uid: object.UID, engine: "redis", root: filepath.Join(k.Dir, string(object.UID)), exits: k.exits}
	env := map[string]string{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
	}
	if env["ENGINE"] != "" {
		p.engine = env["ENGINE"]
	}
	if k.Hung != nil && k.Hung(name) {
		p.hung = true
	}
	for _, dir := range []string{"data", "run/redis-operator", "etc/redis-operator/config", "etc/redis-operator/operator", "etc/redis-operator/auth"} {
		if err := os.MkdirAll(filepath.Join(p.root, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the volumes of Pod %s: %w", name, err)
		}
	}
	ip, err := k.address()
	if err != nil {
		return nil, err
	}
	p.ip = ip
	if err := k.mount(ctx, p, object); err != nil {
		return nil, err
	}
	env["POD_IP"], env["POD_NAME"] = ip, object.Name
	for key, value := range env {
		p.env = append(p.env, key+"="+value)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[name] = p
	return p, nil
}

// mount writes the files of the Pod's ConfigMap and Secrets.
func (k *kubelet) mount(ctx context.Context, p *pod, object *corev1.Pod) error {
	put := func(folder, file string, data []byte) error {
		return os.WriteFile(filepath.Join(p.root, "etc/redis-operator", folder, file), data, 0o600)
	}
	for _, v := range object.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			m := &corev1.ConfigMap{}
			if err := k.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: v.ConfigMap.Name}, m); err != nil {
				return fmt.Errorf("get ConfigMap: %w", err)
			}
			for file, text := range m.Data {
				if file == "redis.conf" {
					text += k.directives(p)
				}
				if err := put("config", file, []byte(text)); err != nil {
					return err
				}
			}
		case v.Secret != nil:
			secret := &corev1.Secret{}
			if err := k.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: v.Secret.SecretName}, secret); err != nil {
				return fmt.Errorf("get Secret: %w", err)
			}
			folder := "auth"
			if operator, ok := secret.Data[manifests.OperatorPasswordKey]; ok && strings.HasSuffix(secret.Name, "-operator") {
				folder, p.password = "operator", string(operator)
			}
			for file, data := range secret.Data {
				if err := put(folder, file, data); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// directives are those that a server needs because it has no network of its own.
func (k *kubelet) directives(p *pod) string {
	lines := append([]string{"bind " + p.ip, "bind-source-addr " + p.ip, "enable-debug-command yes"}, k.Directives...)
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// report writes the status, if it changed.
func (k *kubelet) report(ctx context.Context, object *corev1.Pod, p *pod, ready bool) error {
	restarts, started := p.lives()
	old := object.Status
	if old.PodIP == p.ip && isReady(object) == ready && len(old.ContainerStatuses) == 1 && old.ContainerStatuses[0].RestartCount == restarts {
		return nil
	}
	base := object.DeepCopy()
	truth := corev1.ConditionFalse
	if ready {
		truth = corev1.ConditionTrue
	}
	now := metav1.Now()
	object.Status.Phase, object.Status.PodIP, object.Status.PodIPs = corev1.PodRunning, p.ip, []corev1.PodIP{{IP: p.ip}}
	if old.StartTime == nil {
		object.Status.StartTime = &now
	}
	object.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: object.CreationTimestamp},
		{Type: corev1.PodReady, Status: truth, LastTransitionTime: now},
	}
	status := corev1.ContainerStatus{
		Name: manifests.RedisContainer, Image: redisContainer(object).Image, Ready: ready, Started: &ready, RestartCount: restarts,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
	}
	if restarts > 0 {
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", FinishedAt: metav1.NewTime(started)}
	}
	object.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	if err := k.client.Status().Patch(ctx, object, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("patch status of Pod: %w", client.IgnoreNotFound(err))
	}
	return nil
}

func redisContainer(object *corev1.Pod) *corev1.Container {
	for i := range object.Spec.Containers {
		if object.Spec.Containers[i].Name == manifests.RedisContainer {
			return &object.Spec.Containers[i]
		}
	}
	return nil
}
