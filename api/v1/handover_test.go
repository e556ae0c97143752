package v1

import (
	"testing"
	"time"
)

// TestHandOverRequests are read back, for a minute, and nothing else is one.
func TestHandOverRequests(t *testing.T) {
	now := time.Date(2026, 12, 3, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ value, want string }{
		"none":          {"", ""},
		"new":           {HandOverRequest("orders-0-0", now.Add(-time.Second)), "orders-0-0"},
		"another zone":  {HandOverRequest("orders-0-0", now.In(time.FixedZone("x", 7200))), "orders-0-0"},
		"a clock ahead": {HandOverRequest("orders-0-0", now.Add(30*time.Second)), "orders-0-0"},
		"old":           {HandOverRequest("orders-0-0", now.Add(-2*time.Minute)), ""},
		"from tomorrow": {HandOverRequest("orders-0-0", now.Add(24*time.Hour)), ""},
		"no time":       {"orders-0-0", ""},
		"no sense":      {"orders-0-0 soon", ""},
	} {
		cluster := &RedisCluster{}
		if c.value != "" {
			cluster.Annotations = map[string]string{AnnotationHandOver: c.value}
		}
		if got := cluster.HandOver(now); got != c.want {
			t.Errorf("%s: %q hands over, want %q", name, got, c.want)
		}
	}
}
