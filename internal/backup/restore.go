package backup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// inspect checks a backup before a restore begins.
func inspect(ctx context.Context, t *Task, st store) (Result, error) {
	// A listing tells a bucket that is not there from a backup that is not there.
	if _, err := st.list(ctx); err != nil {
		return Result{}, err
	}
	m, sum, err := readManifest(ctx, st)
	if err != nil {
		return Result{}, err
	}
	if err := m.readable(t.Engine, t.Version); err != nil {
		return Result{}, err
	}
	return m.result(st, sum), sizes(ctx, st, m)
}

// sizes checks that the objects are there and as long as they were.
func sizes(ctx context.Context, st store, m *Manifest) error {
	for _, s := range m.Shards {
		size, err := st.size(ctx, s.Object)
		switch {
		case isReason(err, ReasonNotFound):
			return refuse(ReasonDamaged, "the object %s of %s is missing", s.Object, st.location())
		case err != nil:
			return err
		case size != s.Bytes:
			return refuse(ReasonDamaged, "the object %s of %s has %d bytes, the manifest says %d", s.Object, st.location(), size, s.Bytes)
		}
	}
	return nil
}

// nodesFile is the mark of a folder that a server may start from: it is put in
// place last.
const nodesFile = "nodes.conf"

// seed puts one shard into an empty data folder.
func seed(ctx context.Context, t *Task, st store) (Result, error) {
	if t.OnlyPod != "" && t.OnlyPod != os.Getenv("POD_NAME") {
		return Result{}, nil
	}
	_, err := os.Lstat(filepath.Join(t.DataDir, nodesFile))
	if err == nil {
		return Result{}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) || !filepath.IsAbs(t.DataDir) {
		return Result{}, refuse(ReasonInvalid, "the data folder %q: %w", t.DataDir, err)
	}
	m, sum, err := readManifest(ctx, st)
	if err != nil {
		return Result{}, err
	}
	if err := m.readable(t.Engine, t.Version); err != nil {
		return Result{}, err
	}
	if t.Shard < 0 || t.Shard >= len(m.Shards) {
		return Result{}, refuse(ReasonInvalid, "the backup has %d shards, there is no shard %d", len(m.Shards), t.Shard)
	}
	if err := place(ctx, t, st, &m.Shards[t.Shard]); err != nil {
		return Result{}, err
	}
	nodes, err := nodesConf(m, t.Shard)
	if err == nil {
		err = writeFile(filepath.Join(t.DataDir, nodesFile), strings.NewReader(nodes), 0o640)
	}
	if err != nil {
		return Result{}, fail(ReasonStoreFull, "write the data folder: %w", err)
	}
	return m.result(st, sum), nil
}

// place writes the data where the server looks for them.
func place(ctx context.Context, t *Task, st store, s *ManifestShard) error {
	if !t.AppendOnly {
		return fetch(ctx, st, s, filepath.Join(t.DataDir, "dump.rdb"))
	}
	folder := filepath.Join(t.DataDir, "appendonlydir")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fail(ReasonStoreFull, "write the data folder: %w", err)
	}
	const base = "appendonly.aof.1.base.rdb"
	if err := fetch(ctx, st, s, filepath.Join(folder, base)); err != nil {
		return err
	}
	line := "file " + base + " seq 1 type b\n"
	if err := writeFile(filepath.Join(folder, "appendonly.aof.manifest"), strings.NewReader(line), 0o640); err != nil {
		return fail(ReasonStoreFull, "write the data folder: %w", err)
	}
	if err := syncFolder(t.DataDir); err != nil {
		return fail(ReasonStoreFull, "write the data folder: %w", err)
	}
	return nil
}

// nodesConf is the table of a new node that owns a shard's slots. Each shard has
// an epoch of its own, so that no two claims collide when the nodes meet. The
// server fills in its address.
func nodesConf(m *Manifest, shard int) (string, error) {
	var id [20]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s :0@0 myself,master - 0 0 %d connected %s\nvars currentEpoch %d lastVoteEpoch 0\n",
		hex.EncodeToString(id[:]), shard+1, strings.Join(m.Shards[shard].Slots, " "), len(m.Shards)), nil
}
