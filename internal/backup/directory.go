package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// directory keeps a backup in a folder of a mounted volume.
type directory struct{ path string }

func openDirectory(root, id string) *directory { return &directory{path: filepath.Join(root, id)} }

func (d *directory) location() string { return "file://" + d.path }

func (d *directory) put(ctx context.Context, name string, _ int64, r io.Reader) error {
	err := os.MkdirAll(d.path, 0o750)
	if err == nil {
		err = syncFolder(filepath.Dir(d.path)) // else a crash can take the new folder away
	}
	if err != nil {
		return d.failure("make the folder", err)
	}
	in := &source{Reader: contextReader{ctx, r}}
	err = writeFile(filepath.Join(d.path, name), in, 0o640)
	if in.err != nil {
		return in.err
	}
	return d.failure("write "+name, err)
}

func (d *directory) get(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(d.path, name))
	if err != nil {
		return nil, d.failure("read "+name, err)
	}
	return f, nil
}

func (d *directory) size(_ context.Context, name string) (int64, error) {
	info, err := os.Stat(filepath.Join(d.path, name))
	if err != nil {
		return 0, d.failure("look at "+name, err)
	}
	return info.Size(), nil
}

func (d *directory) list(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, d.failure("list the folder", err)
}

func (d *directory) remove(_ context.Context, name string) error {
	err := os.Remove(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncFolder(d.path)
	}
	return d.failure("remove "+name, err)
}

// close removes a folder that is empty; one that is not stays.
func (d *directory) close() { _ = os.Remove(d.path) }

// failure gives an error of the volume its reason.
func (d *directory) failure(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return refuse(ReasonNotFound, "%s in %s: %w", doing, d.path, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fail(ReasonStoreFull, "%s in %s: there is no room on the volume: enlarge it or delete older backups: %w", doing, d.path, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return refuse(ReasonAccessDenied, "%s in %s: the volume cannot be written by this user: %w", doing, d.path, err)
	}
	return fail(ReasonStoreUnavailable, "%s in %s: %w", doing, d.path, err)
}

// temporary is how the names of files end that are not whole yet.
const temporary = ".partial"

// writeFile writes a file that is there whole, also after a crash, or not at all.
func writeFile(path string, r io.Reader, mode fs.FileMode) (err error) {
	partial := path + temporary
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(partial)
		}
	}()
	if _, err = io.Copy(f, r); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(partial, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// contextReader stops reading when its context has ended.
type contextReader struct {
	ctx context.Context // it lives as long as one call
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
