package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// keys is how many keys a test writes: enough to be on every shard.
const keys = 300

// clusterLifecycle makes a cluster of three nodes, writes and reads, scales it to six
// and deletes it.
func clusterLifecycle(ctx context.Context, s *stage) error {
	c := s.cluster("scorecard-lifecycle", 3)
	if err := s.create(ctx, c); err != nil {
		return err
	}
	if err := s.running(ctx, c); err != nil {
		return err
	}
	if err := s.write(ctx, c); err != nil {
		return err
	}
	if err := s.read(ctx, c); err != nil {
		return err
	}
	scale := []byte(`{"spec":{"replicas":6}}`)
	patch := client.RawPatch(types.MergePatchType, scale)
	if err := s.SubResource("scale").Patch(ctx, c.DeepCopy(), patch, client.WithSubResourceBody(&autoscalingv1.Scale{})); err != nil {
		return fmt.Errorf("scale %s: %w", c.Name, err)
	}
	s.say("%s is told to have 6 nodes", c.Name)
	if err := s.running(ctx, c); err != nil {
		return err
	}
	if c.Status.ReadyReplicas != 6 || c.Status.Shards != 3 {
		return fmt.Errorf("%s is Running with %d nodes in %d shards, want 6 in 3", c.Name, c.Status.ReadyReplicas, c.Status.Shards)
	}
	if err := s.read(ctx, c); err != nil {
		return fmt.Errorf("after scaling: %w", err)
	}
	return s.remove(ctx, c)
}

// running waits until a cluster is Running with all its nodes.
func (s *stage) running(ctx context.Context, c *redisv1.RedisCluster) error {
	err := s.await(ctx, s.patience, c.Name+" is Running", func(ctx context.Context) (string, error) {
		if err := s.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return "", err
		}
		if c.Status.Phase == redisv1.PhaseRunning && c.Status.ObservedGeneration == c.Generation && c.Status.ReadyReplicas == *c.Spec.Replicas {
			return "", nil
		}
		return describe(c), nil
	})
	if err == nil {
		return nil
	}
	if c.Status.ObservedGeneration == 0 {
		s.suggest("no operator has looked at it: install one that watches the namespace %s", s.namespace)
	} else {
		s.suggest("what the conditions mean is in docs/status.md and docs/runbooks")
	}
	return err
}

// describe tells what is missing, in the operator's words.
func describe(c *redisv1.RedisCluster) string {
	if c.Status.ObservedGeneration == 0 {
		return "no operator has looked at it"
	}
	out := []string{fmt.Sprintf("phase %s, %d of %d nodes ready", c.Status.Phase, c.Status.ReadyReplicas, *c.Spec.Replicas)}
	for _, typ := range []string{redisv1.ConditionReady, redisv1.ConditionRestored, redisv1.ConditionDegraded} {
		if cond := meta.FindStatusCondition(c.Status.Conditions, typ); cond != nil {
			out = append(out, fmt.Sprintf("%s=%s %s: %s", typ, cond.Status, cond.Reason, cond.Message))
		}
	}
	return strings.Join(out, "; ")
}

// open connects to a cluster as an application does: by its Service and its Secret.
func (s *stage) open(ctx context.Context, c *redisv1.RedisCluster) (*redis.ClusterClient, error) {
	secret := &corev1.Secret{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + "-auth"}, secret); err != nil {
		return nil, fmt.Errorf("read the password of %s: %w", c.Name, err)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{c.Name + "." + c.Namespace + ".svc:6379"}, Password: string(secret.Data["password"]),
	}), nil
}

func value(key int) string { return fmt.Sprintf("value of %d", key) }

// write writes the keys.
func (s *stage) write(ctx context.Context, c *redisv1.RedisCluster) error {
	rdb, err := s.open(ctx, c)
	if err != nil {
		return err
	}
	for i := range keys {
		if err = rdb.Set(ctx, fmt.Sprint("key", i), value(i), 0).Err(); err != nil {
			err = fmt.Errorf("write key%d to %s: %w", i, c.Name, err)
			break
		}
	}
	if err != nil {
		_ = rdb.Close() // what went wrong before is what counts
		return err
	}
	s.say("%d keys are written to %s", keys, c.Name)
	return rdb.Close()
}

// read wants the keys as they were written.
func (s *stage) read(ctx context.Context, c *redisv1.RedisCluster) error {
	rdb, err := s.open(ctx, c)
	if err != nil {
		return err
	}
	for i := range keys {
		got, readErr := rdb.Get(ctx, fmt.Sprint("key", i)).Result()
		switch {
		case readErr != nil:
			err = fmt.Errorf("read key%d from %s: %w", i, c.Name, readErr)
		case got != value(i):
			err = fmt.Errorf("key%d of %s is %q, %q was written", i, c.Name, got, value(i))
		}
		if err != nil {
			_ = rdb.Close() // what went wrong before is what counts
			return err
		}
	}
	s.say("%d keys are read from %s", keys, c.Name)
	return rdb.Close()
}
