package backup

import (
	"context"
	"errors"
	"io"
	"path"
	"regexp"
)

// store is one backup's folder at a destination. Its errors are reasonErrors.
type store interface {
	// location is the folder as a URL.
	location() string
	// put writes an object of about so many bytes at most, whole or not at all. An
	// error of r is returned as it is.
	put(ctx context.Context, name string, atMost int64, r io.Reader) error
	// get reads an object; ReasonNotFound when there is none.
	get(ctx context.Context, name string) (io.ReadCloser, error)
	// size of an object in bytes; ReasonNotFound when there is none.
	size(ctx context.Context, name string) (int64, error)
	// list names the objects that are there, also those that were left half-written.
	list(ctx context.Context) ([]string, error)
	// remove deletes an object, and what was left half-written of it. One that is
	// not there is no error.
	remove(ctx context.Context, name string) error
	// close ends the folder's use; an empty one is removed where folders exist.
	close()
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// openStore opens the folder of a backup. It does no I/O over the network.
func openStore(d Destination, id string) (store, error) {
	if !validID.MatchString(id) {
		return nil, refuse(ReasonInvalid, "the backup's id %q is not made of letters, digits, '.', '_' and '-'", id)
	}
	switch {
	case d.Remote != nil && d.S3 == nil && d.Directory == "":
		return openRemote(*d.Remote)
	case d.Remote != nil:
	case d.S3 != nil && d.Directory == "":
		return openS3(*d.S3, id)
	case d.S3 == nil && path.IsAbs(d.Directory):
		return openDirectory(d.Directory, id), nil
	case d.S3 == nil && d.Directory != "":
		return nil, refuse(ReasonInvalid, "the directory %q is no absolute path", d.Directory)
	}
	return nil, refuse(ReasonInvalid, "the destination is not exactly one of S3, a directory and a remote one")
}

// source keeps apart an error of what is read from one of the store.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
