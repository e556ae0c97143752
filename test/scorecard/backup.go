package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// backupRestore backs a cluster of three shards up to a volume, and restores it into a
// new one of two.
func backupRestore(ctx context.Context, s *stage) error {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "scorecard-backups", Namespace: s.namespace}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if err := s.create(ctx, claim); err != nil {
		return err
	}
	source := s.cluster("scorecard-source", 3)
	source.Spec.Shards = new(int32(3))
	if err := s.create(ctx, source); err != nil {
		return err
	}
	if err := s.running(ctx, source); err != nil {
		return err
	}
	if err := s.write(ctx, source); err != nil {
		return err
	}
	b := &redisv1.RedisBackup{ObjectMeta: metav1.ObjectMeta{Name: "scorecard-backup", Namespace: s.namespace}}
	b.Spec.ClusterName = source.Name
	b.Spec.Destination.PersistentVolumeClaim = &redisv1.ClaimDestination{ClaimName: claim.Name}
	if err := s.create(ctx, b); err != nil {
		return err
	}
	if err := s.succeeds(ctx, b); err != nil {
		return err
	}
	restored := s.cluster("scorecard-restored", 2)
	restored.Spec.Shards = new(int32(2))
	restored.Spec.RestoreFrom = &redisv1.RestoreSource{BackupName: b.Name}
	if err := s.create(ctx, restored); err != nil {
		return err
	}
	if err := s.running(ctx, restored); err != nil {
		return err
	}
	return s.read(ctx, restored)
}

// succeeds waits for the end of a backup, and wants all keys in it.
func (s *stage) succeeds(ctx context.Context, b *redisv1.RedisBackup) error {
	said := func() string {
		if c := meta.FindStatusCondition(b.Status.Conditions, redisv1.ConditionComplete); c != nil {
			return fmt.Sprintf("%s, %s: %s", b.Status.Phase, c.Reason, c.Message)
		}
		return "no operator has looked at it"
	}
	err := s.await(ctx, s.patience, b.Name+" ends", func(ctx context.Context) (string, error) {
		if err := s.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return "", err
		}
		if b.Done() {
			return "", nil
		}
		return said(), nil
	})
	switch {
	case err != nil:
		s.suggest("the claim scorecard-backups needs a default StorageClass")
		return err
	case b.Status.Phase != redisv1.BackupSucceeded:
		return fmt.Errorf("%s did not succeed: %s", b.Name, said())
	case b.Status.Keys != keys:
		return fmt.Errorf("%s holds %d keys, %d were written", b.Name, b.Status.Keys, keys)
	}
	return nil
}
