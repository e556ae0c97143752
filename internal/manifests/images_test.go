package manifests

import (
	"testing"

	redisv1 "github.com/example/redis-operator/api/v1"
)

func TestImages(t *testing.T) {
	images := ImagesFrom([]string{
		"PATH=/bin",
		"RELATED_IMAGE_REDIS_8_0=mirror.example/redis@sha256:aa=bb",
		"RELATED_IMAGE_REDIS_8_0_2=mirror.example/redis:8.0.2",
		"RELATED_IMAGE_VALKEY_9_1=mirror.example/valkey:9.1",
		"RELATED_IMAGE_REDIS_7_0=",
		"RELATED_IMAGE_NOTHING",
	})
	for _, tt := range []struct {
		name           string
		engine         redisv1.Engine
		version, image string
		images         Images
		want           string
	}{
		{"of the version", redisv1.EngineRedis, "8.0", "", images, "mirror.example/redis@sha256:aa=bb"},
		{"the engine left out", "", "8.0", "", images, "mirror.example/redis@sha256:aa=bb"},
		{"of the patch", redisv1.EngineRedis, "8.0.2", "", images, "mirror.example/redis:8.0.2"},
		{"another patch", redisv1.EngineRedis, "8.0.3", "", images, "docker.io/library/redis:8.0.3"},
		{"another engine", redisv1.EngineValkey, "8.0", "", images, "docker.io/valkey/valkey:8.0"},
		{"Valkey", redisv1.EngineValkey, "9.1", "", images, "mirror.example/valkey:9.1"},
		{"spec.image is first", redisv1.EngineRedis, "8.0", "mine:1", images, "mine:1"},
		{"empty", redisv1.EngineRedis, "7.0", "", images, "docker.io/library/redis:7.0"},
		{"none", redisv1.EngineRedis, "8.0", "", nil, "docker.io/library/redis:8.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &redisv1.RedisCluster{Spec: redisv1.RedisClusterSpec{Engine: tt.engine, Version: tt.version, Image: tt.image}}
			tt.images.Fill(c)
			if got := Image(c); got != tt.want {
				t.Errorf("image %s, want %s", got, tt.want)
			}
		})
	}
}
