package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// directives parses a redis.conf, and fails on a directive that stands there twice.
func directives(t *testing.T, conf string) map[string]string {
	t.Helper()
	d := map[string]string{}
	for line := range strings.Lines(conf) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, " ")
		if !ok || value == "" {
			t.Errorf("the directive %q has no argument", line)
		}
		if _, twice := d[name]; twice {
			t.Errorf("the directive %s stands there twice", name)
		}
		d[name] = value
	}
	return d
}

func TestConfigMerge(t *testing.T) {
	storage := &redisv1.StorageSpec{Size: resource.MustParse("1Gi")}
	for _, test := range []struct {
		name    string
		config  map[string]redisv1.ConfigValue
		storage *redisv1.StorageSpec
		want    map[string]string // "" is a directive that must not be there
	}{
		{
			name: "nothing asked for, data in the Pods",
			want: map[string]string{"appendonly": "no", "appendfsync": "", "save": `""`, "rdb-del-sync-files": "yes", "maxmemory": ""},
		},
		{
			name:    "nothing asked for, data on volumes",
			storage: storage,
			want:    map[string]string{"appendonly": "yes", "appendfsync": "everysec", "save": `""`, "rdb-del-sync-files": ""},
		},
		{
			name:    "the user's value wins",
			storage: storage,
			config:  map[string]redisv1.ConfigValue{"appendfsync": "always", "save": "900 1 300 10", "maxmemory-policy": "allkeys-lru", "repl-backlog-size": "1gb"},
			want:    map[string]string{"appendfsync": "always", "save": "900 1 300 10", "maxmemory-policy": "allkeys-lru", "repl-backlog-size": "1gb", "appendonly": "yes"},
		},
		{
			name:   "a directive without a default is added",
			config: map[string]redisv1.ConfigValue{"min-replicas-to-write": "1", "slowlog-log-slower-than": " 5000 "},
			want:   map[string]string{"min-replicas-to-write": "1", "slowlog-log-slower-than": "5000"},
		},
		{
			name:   "an empty value becomes an empty argument",
			config: map[string]redisv1.ConfigValue{"save": "", "notify-keyspace-events": " "},
			want:   map[string]string{"save": `""`, "notify-keyspace-events": `""`},
		},
		{
			name:   "an owned directive that got past admission changes nothing",
			config: map[string]redisv1.ConfigValue{"cluster-enabled": "no", "bind": "127.0.0.1", "shutdown-timeout": "1"},
			want:   map[string]string{"cluster-enabled": "yes", "bind": "-* -::*", "shutdown-timeout": "10"},
		},
		{
			name:   "buffer limits of other classes leave that of replicas",
			config: map[string]redisv1.ConfigValue{"client-output-buffer-limit": "pubsub 64mb 16mb 60"},
			want:   map[string]string{"client-output-buffer-limit": "pubsub 64mb 16mb 60 replica 256mb 0 0"},
		},
		{
			name:   "a buffer limit of replicas is the user's",
			config: map[string]redisv1.ConfigValue{"client-output-buffer-limit": "normal 0 0 0 Slave 1gb 0 0"},
			want:   map[string]string{"client-output-buffer-limit": "normal 0 0 0 Slave 1gb 0 0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := redisv1.RedisClusterSpec{Config: test.config, Storage: test.storage}
			got := directives(t, redisConf(&spec, UserDirectives(&spec)))
			for _, name := range slices.Sorted(maps.Keys(test.want)) {
				if got[name] != test.want[name] {
					t.Errorf("%s = %q, want %q", name, got[name], test.want[name])
				}
			}
		})
	}
}

func TestMemory(t *testing.T) {
	for _, test := range []struct {
		limit                   string // "" is none
		config                  map[string]redisv1.ConfigValue
		maxmemory, backlog, buf string
	}{
		{limit: "", maxmemory: "", backlog: "64mb", buf: "256mb"},
		{limit: "0", maxmemory: "", backlog: "64mb", buf: "256mb"},
		{limit: "1Mi", maxmemory: "681574", backlog: "170393", buf: "256mb"},
		{limit: "100Mi", maxmemory: "65mb", backlog: "16mb", buf: "256mb"},
		{limit: "256Mi", maxmemory: "166mb", backlog: "41mb", buf: "256mb"},
		{limit: "1Gi", maxmemory: "665mb", backlog: "64mb", buf: "256mb"},
		{limit: "1G", maxmemory: "619mb", backlog: "64mb", buf: "256mb"},
		{limit: "8Gi", maxmemory: "5324mb", backlog: "332mb", buf: "1331mb"},
		{limit: "64Ti", maxmemory: "43620761mb", backlog: "2726297mb", buf: "10905190mb"},
		{limit: "1Gi", config: map[string]redisv1.ConfigValue{"maxmemory": "100mb"}, maxmemory: "100mb", backlog: "64mb", buf: "256mb"},
	} {
		t.Run(test.limit, func(t *testing.T) {
			spec := &redisv1.RedisClusterSpec{Config: test.config}
			if test.limit != "" {
				spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(test.limit)}
			}
			// What is asked for is no limit.
			spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
			got := directives(t, redisConf(spec, UserDirectives(spec)))
			for name, want := range map[string]string{
				"maxmemory":                  test.maxmemory,
				"repl-backlog-size":          test.backlog,
				"client-output-buffer-limit": "replica " + test.buf + " 0 0",
			} {
				if got[name] != want {
					t.Errorf("%s = %q, want %q", name, got[name], want)
				}
			}
		})
	}
}

// TestPodTemplateIgnoresConfig holds that no directive restarts a Pod.
func TestPodTemplateIgnoresConfig(t *testing.T) {
	a := newCluster(func(*redisv1.RedisClusterSpec) {})
	b := newCluster(func(s *redisv1.RedisClusterSpec) {
		s.Config = map[string]redisv1.ConfigValue{"maxmemory-policy": "allkeys-lru"}
	})
	if x, y := toYAML(t, StatefulSet(a, 0, 2, "")), toYAML(t, StatefulSet(b, 0, 2, "")); string(x) != string(y) {
		t.Errorf("a directive changes the StatefulSet:\n%s\n%s", x, y)
	}
	if x, y := toYAML(t, ConfigMap(a, UserDirectives(&a.Spec), "")), toYAML(t, ConfigMap(b, UserDirectives(&b.Spec), "")); string(x) == string(y) {
		t.Error("a directive does not change the ConfigMap")
	}
}

func TestNewPassword(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		p := NewPassword()
		if len(p) < 32 {
			t.Fatalf("a password of %d characters", len(p))
		}
		if strings.Trim(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			t.Fatal("a password holds more than letters and digits")
		}
		if seen[p] {
			t.Fatal("a password came twice")
		}
		seen[p] = true
	}
}
