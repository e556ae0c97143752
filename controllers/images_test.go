package controllers

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/manifests"
)

// TestRelatedImages: Pods and verifying Jobs run the image that the operator's
// Deployment names, and the user's object is left as it is.
func TestRelatedImages(t *testing.T) {
	const mirrored = "mirror.example/redis@sha256:aa"
	v := newVault(t)
	images := manifests.Images{"REDIS_8_0": mirrored}
	v.stage.r.Images, v.r.Images = images, images
	if err := v.pass(); err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{}
	if !v.get(set, manifests.ShardName(v.cluster, 0)) {
		t.Fatal("there is no StatefulSet")
	}
	if got := set.Spec.Template.Spec.Containers[0].Image; got != mirrored {
		t.Errorf("the StatefulSet's image is %s, want %s", got, mirrored)
	}
	v.get(v.cluster, v.cluster.Name)
	if v.cluster.Spec.Image != "" {
		t.Errorf("spec.image was written: %s", v.cluster.Spec.Image)
	}

	v.report(redisv1.ConditionAvailable, "True", redisv1.ReasonSlotsServed)
	v.report(redisv1.ConditionProgressing, "False", redisv1.ReasonSettled)
	v.look(v.ask("one", func(s *redisv1.RedisBackupSpec) { s.Verify = redisv1.VerifyRestore }))
	if got := v.job("one-b").Spec.Template.Spec.Containers[0].Image; got != mirrored {
		t.Errorf("the Job restores in %s, want %s", got, mirrored)
	}
}
