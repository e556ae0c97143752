package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	redisv1 "github.com/example/redis-operator/api/v1"
	"github.com/example/redis-operator/internal/backup"
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

// TestSubcommands: the exit code tells a Job whether trying again can help.
func TestSubcommands(t *testing.T) {
	absent := backup.Task{Operation: backup.OperationDelete, ID: "b1", Destination: backup.Destination{Directory: t.TempDir()}}
	unready := backup.Task{Operation: backup.OperationBackup, ID: "b1", Destination: absent.Destination, Seeds: []string{"127.0.0.1:1"}}
	for _, tt := range []struct {
		name, task string
		args       []string
		code       int
		ok         bool
	}{
		{"the manager", "", nil, 0, false},
		{"the manager with flags", "", []string{"--leader-elect"}, 0, false},
		{"done", absent.Encode(), []string{"backup"}, 0, true},
		{"no node answers", unready.Encode(), []string{"backup"}, backup.ExitFailed, true},
		{"no task", "", []string{"backup"}, backup.ExitPermanent, true},
		{"the other subcommand's task", absent.Encode(), []string{"restore"}, backup.ExitPermanent, true},
		{"install into nothing", "", []string{"install"}, 2, true},
		{"install into no folder", "", []string{"install", "/does/not/exist"}, 1, true},
		{"install", "", []string{"install", t.TempDir()}, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(backup.TaskVariable, tt.task)
			if code, ok := subcommand(tt.args); code != tt.code || ok != tt.ok {
				t.Errorf("exit code %d, %t; want %d, %t", code, ok, tt.code, tt.ok)
			}
		})
	}
}
