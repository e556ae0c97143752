package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/example/redis-operator/internal/redis"
)

// FormatVersion is that of the manifests which this program writes and reads.
const FormatVersion = 1

// ManifestName is the object that makes a backup exist; it is written last.
const ManifestName = "manifest.json"

// manifestLimit bounds what is read for a manifest.
const manifestLimit = 4 << 20

// Manifest describes a backup: what docs/backup-format.md shows by example.
type Manifest struct {
	FormatVersion int    `json:"formatVersion"`
	ID            string `json:"id"`
	Cluster       string `json:"cluster"`
	// Engine and Version are of the newest server that was read.
	Engine  string `json:"engine"`
	Version string `json:"version"`
	// Created is when the backup began; no shard is older.
	Created time.Time `json:"created"`
	// Restored: each shard was loaded by a server and its keys were counted.
	Restored bool            `json:"restored,omitempty"`
	Shards   []ManifestShard `json:"shards"`
}

// ManifestShard is one shard's RDB.
type ManifestShard struct {
	// Slots in the form of CLUSTER NODES: "0-5460", "7".
	Slots []string `json:"slots"`
	// Object is the name in the backup's folder.
	Object string `json:"object"`
	// Compression is "Zstd" or "None".
	Compression string `json:"compression"`
	// Bytes and SHA256 are of the object as it is stored.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// RDBBytes is the size of the RDB in it.
	RDBBytes int64 `json:"rdbBytes"`
	// RDBMagic is how the RDB begins; RDBUnchecked says that it has no checksum.
	RDBMagic     string `json:"rdbMagic"`
	RDBUnchecked bool   `json:"rdbUnchecked,omitempty"`
	// Keys counts the keys, also the expired ones that were still there.
	Keys int64 `json:"keys"`
	// Functions counts the function libraries.
	Functions int64 `json:"functions"`
	// ReplicationID and ReplicationOffset are the moment in the node's history.
	ReplicationID     string `json:"replicationID"`
	ReplicationOffset int64  `json:"replicationOffset"`
	// Source is the node that was read, SourceRole "primary" or "replica".
	Source     string `json:"source"`
	SourceRole string `json:"sourceRole"`
}

// writeManifest stores a manifest and returns its SHA-256.
func writeManifest(ctx context.Context, st store, m *Manifest) (string, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the manifest: %w", err)
	}
	data = append(data, '\n')
	if err := st.put(ctx, ManifestName, int64(len(data)), bytes.NewReader(data)); err != nil {
		return "", err
	}
	return sha256Hex(data), nil
}

// readManifest reads and checks a manifest and returns its SHA-256.
func readManifest(ctx context.Context, st store) (*Manifest, string, error) {
	object, err := st.get(ctx, ManifestName)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = object.Close() }()
	data, err := io.ReadAll(io.LimitReader(object, manifestLimit))
	if err != nil {
		return nil, "", classified(err, ReasonStoreUnavailable, "read the manifest")
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, "", refuse(ReasonDamaged, "the manifest of %s cannot be read: %w", st.location(), err)
	}
	if m.FormatVersion != FormatVersion {
		return nil, "", refuse(ReasonIncompatible, "the manifest of %s has format version %d, this program reads %d", st.location(), m.FormatVersion, FormatVersion)
	}
	if err := m.check(); err != nil {
		return nil, "", refuse(ReasonDamaged, "the manifest of %s is wrong: %w", st.location(), err)
	}
	return &m, sha256Hex(data), nil
}

// check finds what no manifest of this program says.
func (m *Manifest) check() error {
	var all []redis.SlotRange
	objects := map[string]bool{}
	for i, s := range m.Shards {
		ranges, err := s.ranges()
		if err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
		all = append(all, ranges...)
		if s.Object != objectName(i, s.Compression) || objects[s.Object] {
			return fmt.Errorf("shard %d has the object %q", i, s.Object)
		}
		objects[s.Object] = true
	}
	return coverage(all)
}

func (s *ManifestShard) ranges() ([]redis.SlotRange, error) {
	var out []redis.SlotRange
	for _, text := range s.Slots {
		r, err := redis.ParseSlotRange(text)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// coverage checks that ranges cover all slots, each once.
func coverage(ranges []redis.SlotRange) error {
	var owners [redis.SlotCount]int
	for _, r := range ranges {
		for slot := r.First; slot <= r.Last; slot++ {
			owners[slot]++
		}
	}
	for slot, n := range owners {
		if n != 1 {
			return fmt.Errorf("slot %d is in %d shards", slot, n)
		}
	}
	return nil
}

const (
	zstdCompression = "Zstd"
	noCompression   = "None"
)

func objectName(shard int, compression string) string {
	name := fmt.Sprintf("shard-%04d.rdb", shard)
	if compression == zstdCompression {
		name += ".zst"
	}
	return name
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// result is what is reported of a whole backup.
func (m *Manifest) result(st store, sum string) Result {
	r := Result{
		Location: st.location(), Engine: m.Engine, RedisVersion: m.Version, StartTime: m.Created,
		Shards: len(m.Shards), ManifestSHA256: sum, Verified: m.Restored,
	}
	for _, s := range m.Shards {
		r.TotalBytes += s.Bytes
		r.Keys += s.Keys
	}
	return r
}

// readable tells why a server cannot read the backup; nil when it can.
func (m *Manifest) readable(engine, version string) error {
	target, from := minor(version), minor(m.Version)
	if target == 0 || (engine != string(redis.Redis) && engine != string(redis.Valkey)) {
		return refuse(ReasonInvalid, "the target's engine %q or version %q is unknown", engine, version)
	}
	if engine == m.Engine && target < from {
		return refuse(ReasonIncompatible, "the backup is of %s %s: %s %s is older and cannot read it", m.Engine, m.Version, engine, version)
	}
	if engine == m.Engine {
		return nil
	}
	for _, s := range m.Shards {
		// Up to RDB 11, of Redis 7.2, both engines write and read the same.
		number, isRedis := strings.CutPrefix(s.RDBMagic, "REDIS")
		rdbVersion, err := strconv.Atoi(number)
		if !isRedis || err != nil || rdbVersion > 11 {
			return refuse(ReasonIncompatible, "the backup is of %s %s, whose format %s %s %s cannot read", m.Engine, m.Version, s.RDBMagic, engine, version)
		}
		if engine == string(redis.Redis) && rdbVersion == 11 && target < minor("7.2") {
			return refuse(ReasonIncompatible, "the backup's format %s can be read by Redis from 7.2 on, not by %s", s.RDBMagic, version)
		}
	}
	return nil
}

// minor makes a number of a version, "8.1.3", that compares as its first two
// parts do; 0 when it is no version.
func minor(version string) int {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return 0
	}
	major, err := strconv.Atoi(parts[0])
	second, err2 := strconv.Atoi(parts[1])
	if err != nil || err2 != nil {
		return 0
	}
	return major*1000 + second
}
