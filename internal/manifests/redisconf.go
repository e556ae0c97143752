package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	redisv1 "github.com/example/redis-operator/api/v1"
)

const mib = 1 << 20

// owned are the directives that spec.config cannot change; admission refuses
// them there. What depends on the Pod (port, dir, aclfile, announced address)
// is added by start.sh.
func owned(spec *redisv1.RedisClusterSpec) map[string]string {
	d := map[string]string{
		// The clients' port on all addresses of both families; the dash lets a
		// node start where one family is missing.
		"bind": "-* -::*",
		// Logins are in the ACL file; without a password it is the user's wish.
		"protected-mode": "no",
		"daemonize":      "no",

		"cluster-enabled":     "yes",
		"cluster-config-file": "nodes.conf",
		// Less risks that a node that is only busy is taken for dead.
		"cluster-node-timeout": "5000",
		// Otherwise a shard that is being emptied follows the receiver.
		"cluster-allow-replica-migration": "no",
		// One shard's trouble does not stop the others.
		"cluster-require-full-coverage": "no",
		// Never 0: a replica that has never synced could win an election.
		"cluster-replica-validity-factor": "10",

		// A replica keeps its copy until the new one is complete on disk.
		"repl-diskless-load": "disabled",
		// How long a primary that is told to end waits for its replicas, seconds.
		"shutdown-timeout": strconv.Itoa(shutdownTimeout),
	}
	if spec.Storage == nil {
		// The file of the last full sync is stale when the node starts again.
		d["rdb-del-sync-files"] = "yes"
	}
	return d
}

// defaults are the directives that spec.config may change.
func defaults(spec *redisv1.RedisClusterSpec) map[string]string {
	d := map[string]string{
		"save":       `""`,
		"appendonly": "no",
		// A damaged file is noticed when it is loaded, not when a key is read.
		"rdbchecksum":      "yes",
		"maxmemory-policy": "noeviction",
		// No file in between; and no wait for further replicas, which costs 5 s
		// for each sync otherwise.
		"repl-diskless-sync":       "yes",
		"repl-diskless-sync-delay": "0",
	}
	if spec.Storage != nil {
		d["appendonly"] = "yes"
		d["appendfsync"] = "everysec"
	}
	memory := memoryFor(spec)
	if memory.max > 0 {
		d["maxmemory"] = size(memory.max)
	}
	d["repl-backlog-size"] = size(memory.backlog)
	d[outputBufferLimit] = memory.replicaBuffer()
	return d
}

const outputBufferLimit = "client-output-buffer-limit"

// memory is how a node's memory is divided, in bytes.
type memory struct {
	// max is maxmemory; 0 when the container has no limit.
	max int64
	// backlog keeps the latest writes for replicas that come back.
	backlog int64
	// buffer is what a replica may lag behind before it is cut off.
	buffer int64
}

// memoryFor divides the container's memory limit. maxmemory gets 65 % of it:
// the rest is for the pages that are written to while a child saves or syncs,
// for buffers and fragmentation. The backlog counts against maxmemory, so in a
// small node it gets no more than a quarter of it; large nodes, where a full
// sync is dear, get a larger one.
func memoryFor(spec *redisv1.RedisClusterSpec) memory {
	m := memory{backlog: 64 * mib, buffer: 256 * mib}
	limit := spec.Resources.Limits.Memory().Value()
	if limit <= 0 {
		return m
	}
	m.max = wholeMiB(limit/100*65 + limit%100*65/100)
	m.backlog = wholeMiB(min(max(m.backlog, m.max/16), m.max/4))
	m.buffer = wholeMiB(max(m.buffer, m.max/4))
	return m
}

// wholeMiB rounds down to mebibytes, for people to read; less than one is left
// as it is, because 0 means no limit.
func wholeMiB(n int64) int64 {
	if n < mib {
		return n
	}
	return n - n%mib
}

// replicaBuffer is the output buffer limit of replicas. There is no soft limit:
// it would cut off a sync that takes long and then starts anew.
func (m memory) replicaBuffer() string { return fmt.Sprintf("replica %s 0 0", size(m.buffer)) }

// size writes bytes as redis.conf does, in mb where that is exact.
func size(n int64) string {
	if n >= mib && n%mib == 0 {
		return strconv.FormatInt(n/mib, 10) + "mb"
	}
	return strconv.FormatInt(n, 10)
}

// UserDirectives are the directives of spec.config as they stand in redis.conf.
// One that the operator owns is left out: it has been refused, and one line must
// be left.
func UserDirectives(spec *redisv1.RedisClusterSpec) map[string]string {
	own, standard, d := owned(spec), defaults(spec), map[string]string{}
	for name, v := range spec.Config {
		value := strings.TrimSpace(string(v))
		if _, refused := own[name]; refused {
			continue
		}
		switch {
		case value == "":
			value = `""` // no argument at all is an error
		case name == outputBufferLimit && !limitsReplicas(value):
			value += " " + standard[name]
		}
		d[name] = value
	}
	return d
}

// limitsReplicas tells whether a client-output-buffer-limit, groups of class,
// hard, soft and seconds, speaks of replicas.
func limitsReplicas(value string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(value)), func(f string) bool {
		return f == "replica" || f == "slave"
	})
}

// fromSpec heads the last section of redis.conf.
const fromSpec = "# From spec.config."

// redisConf is the redis.conf of every node, sorted, one line for each directive.
func redisConf(spec *redisv1.RedisClusterSpec, user map[string]string) string {
	var b strings.Builder
	write := func(title string, directives map[string]string) {
		b.WriteString(title + "\n")
		for _, name := range slices.Sorted(maps.Keys(directives)) {
			b.WriteString(name + " " + directives[name] + "\n")
		}
	}
	standard := defaults(spec)
	for name := range user {
		delete(standard, name)
	}
	write("# Owned by the operator.", owned(spec))
	write("# Defaults.", standard)
	write(fromSpec, user)
	return b.String()
}

// UserDirectivesIn reads back what a ConfigMap of the operator has from
// spec.config; nil if it is none.
func UserDirectivesIn(data map[string]string) map[string]string {
	_, section, ok := strings.Cut(data[redisConfFile], fromSpec+"\n")
	if !ok {
		return nil
	}
	d := map[string]string{}
	for line := range strings.Lines(section) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), " "); ok {
			d[name] = value
		}
	}
	return d
}
