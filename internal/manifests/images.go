package manifests

import (
	"strings"

	redisv1 "github.com/example/redis-operator/api/v1"
)

// relatedImage is the start of the names of variables that hold images. OLM lists
// what they hold as a bundle's related images, and tools that mirror a bundle into
// another registry rewrite them.
const relatedImage = "RELATED_IMAGE_"

// Images are the images of the engines that take the place of those of Docker Hub,
// by engine and version: "REDIS_8_0", "VALKEY_9_1_2". The zero value replaces none.
type Images map[string]string

// ImagesFrom reads the variables RELATED_IMAGE_<ENGINE>_<VERSION> of an environment,
// as os.Environ gives it, with the dots of the version as underscores. Others, and
// empty ones, are left out.
func ImagesFrom(environ []string) Images {
	images := Images{}
	for _, v := range environ {
		name, image, _ := strings.Cut(v, "=")
		if key, ok := strings.CutPrefix(name, relatedImage); ok && image != "" {
			images[key] = image
		}
	}
	return images
}

// Fill sets spec.image where it is left out and there is an image for exactly the
// engine and version: an image of 8.0 does not stand for 8.0.2, nor the other way
// round. c is a copy that is never written back.
func (i Images) Fill(c *redisv1.RedisCluster) {
	if c.Spec.Image != "" {
		return
	}
	engine := c.Spec.Engine
	if engine == "" {
		engine = redisv1.EngineRedis
	}
	c.Spec.Image = i[strings.ToUpper(string(engine))+"_"+strings.ReplaceAll(c.Spec.Version, ".", "_")]
}
