package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

const (
	redisPort = "6379"
	// patience bounds each command and each dial: the nodes are close by.
	patience = 2 * time.Second
)

// Pods are the Pods of a RedisCluster that nobody deletes, sorted by name.
func (k *Kube) Pods(ctx context.Context, c *redisv1.RedisCluster) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := k.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{"app.kubernetes.io/instance": c.Name})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of %s: %w", c.Name, err)
	}
	var pods []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp.IsZero() {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// Password is what clients of a RedisCluster log in with; empty when auth is
// disabled.
func (k *Kube) Password(ctx context.Context, c *redisv1.RedisCluster) (string, error) {
	if c.Spec.AuthDisabled() {
		return "", nil
	}
	name := c.Name + "-auth"
	if c.Spec.Auth != nil && c.Spec.Auth.SecretName != "" {
		name = c.Spec.Auth.SecretName
	}
	var secret corev1.Secret
	if err := k.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &secret); err != nil {
		return "", fmt.Errorf("get the password of %s: %w", c.Name, err)
	}
	return string(secret.Data["password"]), nil
}

// Dial gives a client of one Redis node. It does not connect yet.
func Dial(ip, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: net.JoinHostPort(ip, redisPort), Password: password,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaxRetries: -1, DialerRetries: 1, PoolSize: 2,
	})
}

// ClusterClient gives a client as users have it, which learns the cluster from
// the Pods at hand. It gives each command up after a few redirections.
func (k *Kube) ClusterClient(ctx context.Context, c *redisv1.RedisCluster) (*redis.ClusterClient, error) {
	password, err := k.Password(ctx, c)
	if err != nil {
		return nil, err
	}
	pods, err := k.Pods(ctx, c)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for i := range pods {
		if ip := pods[i].Status.PodIP; ip != "" {
			addresses = append(addresses, net.JoinHostPort(ip, redisPort))
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no Pod of %s has an address", c.Name)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addresses, Password: password,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, DialerRetries: 1,
	}), nil
}

// SetInShard writes a key to a primary that owns its slot, and gives its name.
// Keys are tried by number until one belongs there.
func SetInShard(ctx context.Context, primary *redis.Client, prefix, value string) (key string, err error) {
	const tries = 1000 // a primary of a hundred shards owns one key in a hundred
	for i := range tries {
		key = fmt.Sprintf("%s-%d", prefix, i)
		err = primary.Set(ctx, key, value, 0).Err()
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("set %s at %s: %w", key, primary.Options().Addr, err)
	}
	return key, nil
}

// Primary is the Pod that holds a shard's slots, by the status of its cluster.
func (k *Kube) Primary(ctx context.Context, c *redisv1.RedisCluster, shard int) (*corev1.Pod, error) {
	for _, s := range c.Status.ShardStatuses {
		if int(s.Index) != shard || s.Primary == "" {
			continue
		}
		pod := &corev1.Pod{}
		err := k.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: s.Primary}, pod)
		if err != nil {
			return nil, fmt.Errorf("get the primary of shard %d: %w", shard, err)
		}
		return pod, nil
	}
	return nil, fmt.Errorf("the status of %s names no primary of shard %d", c.Name, shard)
}

// Gone is a condition: an object does not exist.
func (k *Kube) Gone(o client.Object) Condition {
	return func(ctx context.Context) (string, error) {
		err := k.Get(ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return "", fmt.Errorf("get %s: %w", o.GetName(), err)
		}
		return o.GetName() + " is still there", nil
	}
}
