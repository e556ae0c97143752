package v1

import (
	"strings"
	"time"
)

// AnnotationHandOver on a RedisCluster asks for a hand-over: the primary that it
// names gives its place to one of its replicas, without a lost write. The value is
// what HandOverRequest makes. Once another Pod is the shard's primary the request is
// fulfilled, and after HandOverPatience it means nothing any more, so that one that was
// left behind does no harm.
const AnnotationHandOver = "redis.example.com/hand-over"

// HandOverPatience is for how long a request is honoured.
const HandOverPatience = time.Minute

// HandOverRequest is the value of AnnotationHandOver: the Pod of the primary, and when
// it was asked for.
func HandOverRequest(primary string, at time.Time) string {
	return primary + " " + at.UTC().Format(time.RFC3339)
}

// HandOver is the Pod that is to give up its place at a time; empty when nobody is
// asked to, or the request is too old, or from a clock that is far ahead, or not to be
// read.
func (c *RedisCluster) HandOver(now time.Time) (primary string) {
	name, text, _ := strings.Cut(c.Annotations[AnnotationHandOver], " ")
	at, err := time.Parse(time.RFC3339, text)
	if age := now.Sub(at); err != nil || age > HandOverPatience || age < -HandOverPatience {
		return ""
	}
	return name
}
