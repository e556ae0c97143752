package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/readahead"

	"github.com/example/redis-operator/internal/rdb"
)

// zstdWindow bounds the memory of both sides of the compression.
const zstdWindow = 256 << 10

// digest counts and sums what is written to it.
type digest struct {
	hash.Hash
	bytes int64
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

// Write implements io.Writer.
func (d *digest) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return d.Hash.Write(p)
}

func (d *digest) hex() string { return hex.EncodeToString(d.Sum(nil)) }

// stream reads one shard into an object, checking it on the way.
func (r *run) stream(ctx context.Context, name string, s shard) (ManifestShard, error) {
	s.settle(ctx, r.dialer)
	out := ManifestShard{Object: name, Compression: r.task.Compression, Source: s.source.addr, SourceRole: s.source.state.Role.String()}
	for _, slots := range s.slots {
		out.Slots = append(out.Slots, slots.String())
	}
	used, err := r.usedMemory(ctx, s.source.addr)
	if err != nil {
		return out, fail(ReasonSourceFailed, "ask for the size: %w", err)
	}
	snap, err := r.dialer.Snapshot(ctx, s.source.addr, s.source.state.Version)
	if err != nil {
		return out, fail(ReasonSourceFailed, "ask for the data: %w", err)
	}
	out.ReplicationID, out.ReplicationOffset = snap.ReplicationID, snap.Offset
	ahead := readAhead(snap)
	defer func() { _ = snap.Close(); _ = ahead.Close() }()

	stored := newDigest()
	var sum rdb.Summary
	piped, pipe := io.Pipe()
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		var err error
		sum, err = pump(ahead, pipe, r.task.Compression)
		_ = pipe.CloseWithError(err)
	}()
	packed := readAhead(piped)
	err = r.store.put(ctx, name, used, io.TeeReader(packed, stored))
	_ = piped.CloseWithError(errStoreFailed)
	_ = packed.Close()
	<-pumped
	if err != nil {
		return out, classified(err, ReasonSourceFailed, "read the data of "+s.source.addr)
	}
	out.Bytes, out.SHA256 = stored.bytes, stored.hex()
	out.RDBBytes, out.RDBMagic, out.RDBUnchecked, out.Keys, out.Functions = sum.Bytes, sum.Magic, sum.Unchecked, sum.Keys, sum.Functions
	return out, nil
}

func (r *run) usedMemory(ctx context.Context, addr string) (int64, error) {
	n := r.dialer.Open(addr)
	defer func() { _ = n.Close() }()
	return n.UsedMemory(ctx)
}

// readAhead reads on while what was read is worked on: so the server, the compression
// and the store keep several processors busy. Small pieces become large ones.
func readAhead(r io.Reader) io.ReadCloser {
	const buffers, size = 3, 256 << 10
	in, err := readahead.NewReaderSize(r, buffers, size)
	if err != nil {
		panic(err) // of a nonsensical number or size alone
	}
	return in
}

var errStoreFailed = errors.New("the store takes no more")

// pump scans an RDB and writes it on, compressed or as it is.
func pump(from io.Reader, to io.Writer, compression string) (rdb.Summary, error) {
	if compression == noCompression {
		return rdb.Scan(io.TeeReader(from, to))
	}
	enc, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return rdb.Summary{}, err
	}
	sum, err := rdb.Scan(io.TeeReader(from, enc))
	if err != nil {
		return sum, err // the frame stays open, so that it is no whole one
	}
	return sum, enc.Close()
}

// fetch reads a shard's object into a file, which appears only once everything
// agrees with the manifest.
func fetch(ctx context.Context, st store, s *ManifestShard, path string) error {
	object, err := st.get(ctx, s.Object)
	if isReason(err, ReasonNotFound) {
		return refuse(ReasonDamaged, "the object %s of %s is missing", s.Object, st.location())
	}
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }()
	piped, pipe := io.Pipe()
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		_ = pipe.CloseWithError(unpack(object, s, pipe))
	}()
	in := &source{Reader: contextReader{ctx, piped}}
	err = writeFile(path, in, 0o640)
	_ = piped.CloseWithError(errStoreFailed)
	<-checked
	switch {
	case in.err == nil && err != nil:
		return fail(ReasonStoreFull, "write the data folder: %w", err)
	case in.err == nil || ctx.Err() != nil:
		return classified(in.err, ReasonStoreUnavailable, "read "+s.Object)
	}
	var f *reasonError
	if errors.As(in.err, &f) {
		return f
	}
	return refuse(ReasonDamaged, "the object %s of %s is damaged: %w", s.Object, st.location(), in.err)
}

// unpack writes on the RDB in an object; nil means that all of it is as the
// manifest says.
func unpack(object io.Reader, s *ManifestShard, to io.Writer) error {
	stored := newDigest()
	all := io.TeeReader(object, stored)
	plain := all
	if s.Compression == zstdCompression {
		dec, err := zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return err
		}
		defer dec.Close()
		plain = dec
	}
	sum, err := rdb.Scan(io.TeeReader(plain, to))
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return err
	}
	if stored.bytes != s.Bytes || stored.hex() != s.SHA256 || sum.Bytes != s.RDBBytes {
		return errors.New("its checksums are not those of the manifest")
	}
	if sum.Keys != s.Keys || sum.Functions != s.Functions || sum.Magic != s.RDBMagic {
		return errors.New("its content is not what the manifest says")
	}
	return nil
}
