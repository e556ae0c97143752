package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
)

func TestWatchNamespaces(t *testing.T) {
	for env, want := range map[string][]string{
		"":                nil,
		" , ":             nil,
		"shop":            {"shop"},
		"shop,pay":        {"shop", "pay"},
		" shop , pay ,, ": {"shop", "pay"},
	} {
		if got := watchNamespaces(env); !slices.Equal(got, want) {
			t.Errorf("watchNamespaces(%q) = %q, want %q", env, got, want)
		}
	}
}

func TestCacheHoldsOnlyOwnObjects(t *testing.T) {
	o := cacheOptions([]string{"shop"})
	if _, ok := o.DefaultNamespaces["shop"]; !ok || len(o.DefaultNamespaces) != 1 {
		t.Errorf("namespaces = %v, want shop alone", o.DefaultNamespaces)
	}
	if all := cacheOptions(nil); all.DefaultNamespaces != nil {
		t.Errorf("namespaces = %v, want none named, for all", all.DefaultNamespaces)
	}
	for obj, by := range o.ByObject {
		switch obj.(type) {
		case *redisv1.RedisCluster, *redisv1.RedisBackup:
			continue // users make them
		}
		if _, secret := obj.(*corev1.Secret); secret {
			t.Error("Secrets are cached")
		}
		if by.Label == nil || !by.Label.Matches(labels.Set{"app.kubernetes.io/managed-by": "redis-operator"}) || by.Label.Matches(labels.Set{}) {
			t.Errorf("%T is selected by %q", obj, by.Label)
		}
	}
	live := options(&flags{}, nil).Client.Cache.DisableFor
	if !slices.ContainsFunc(live, func(o client.Object) bool { _, ok := o.(*corev1.Secret); return ok }) {
		t.Error("a read of a Secret would start a cache of all Secrets")
	}
}
