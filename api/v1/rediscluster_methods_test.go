package v1

import (
	"slices"
	"testing"
)

func TestMembers(t *testing.T) {
	for _, c := range []struct {
		replicas, shards int32 // 0: left out
		want             []int
	}{
		{0, 0, []int{2, 2, 2}},
		{1, 0, []int{1}},
		{2, 0, []int{2}},
		{3, 0, []int{3}},
		{4, 0, []int{2, 2}},
		{5, 0, []int{3, 2}},
		{7, 0, []int{3, 2, 2}},
		{3, 3, []int{1, 1, 1}},
		{8, 3, []int{3, 3, 2}},
		{9, 1, []int{9}},
	} {
		spec := RedisClusterSpec{}
		if c.replicas != 0 {
			spec.Replicas = &c.replicas
		}
		if c.shards != 0 {
			spec.Shards = &c.shards
		}
		if got := spec.Members(); !slices.Equal(got, c.want) {
			t.Errorf("replicas %d, shards %d: members %v, want %v", c.replicas, c.shards, got, c.want)
		}
	}
}

func TestAuthSecretName(t *testing.T) {
	for _, c := range []struct {
		auth     *AuthSpec
		secret   string
		disabled bool
	}{
		{nil, "orders-auth", false},
		{&AuthSpec{}, "orders-auth", false},
		{&AuthSpec{SecretName: "mine"}, "mine", false},
		{&AuthSpec{Disabled: true}, "orders-auth", true},
	} {
		cluster := &RedisCluster{Spec: RedisClusterSpec{Auth: c.auth}}
		cluster.Name = "orders"
		if got := cluster.AuthSecretName(); got != c.secret {
			t.Errorf("auth %+v: Secret %q, want %q", c.auth, got, c.secret)
		}
		if got := cluster.Spec.AuthDisabled(); got != c.disabled {
			t.Errorf("auth %+v: disabled %t", c.auth, got)
		}
	}
}
