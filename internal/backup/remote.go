package backup

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// remote reads a backup from OperationServe.
type remote struct {
	url                string
	username, password string
	client             *http.Client
}

func openRemote(d Remote) (store, error) {
	password, err := readPassword(d.PasswordFile)
	if err != nil {
		return nil, err
	}
	return &remote{url: d.URL, username: d.Username, password: password, client: &http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: s3Connect, KeepAlive: 15 * time.Second}).DialContext,
		ResponseHeaderTimeout: s3Answer,
	}}}, nil
}

func (r *remote) location() string { return r.url }

func (r *remote) ask(ctx context.Context, method, name string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url+"/"+name, http.NoBody)
	if err != nil {
		return nil, refuse(ReasonInvalid, "the URL %q: %w", r.url, err)
	}
	request.SetBasicAuth(r.username, r.password)
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, fail(ReasonStoreUnavailable, "read %s: %w", name, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, refuse(ReasonNotFound, "read %s of %s: there is no such object", name, r.url)
	case http.StatusUnauthorized:
		// The Secret may be new to one side only.
		return nil, fail(ReasonAccessDenied, "read %s of %s: the password is refused", name, r.url)
	}
	return nil, fail(ReasonStoreUnavailable, "read %s of %s: %s", name, r.url, answer.Status)
}

func (r *remote) get(ctx context.Context, name string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	answer, err := r.ask(ctx, http.MethodGet, name) //nolint:bodyclose // remoteObject closes it
	if err != nil {
		cancel()
		return nil, err
	}
	return &remoteObject{ReadCloser: answer.Body, left: answer.ContentLength, name: name, cancel: cancel}, nil
}

// remoteObject tells an object that broke off from one that is damaged, and does not
// wait for a server that has fallen silent.
type remoteObject struct {
	io.ReadCloser
	left   int64
	name   string
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (o *remoteObject) Read(p []byte) (int, error) {
	silent := time.AfterFunc(s3Answer, o.cancel)
	n, err := o.ReadCloser.Read(p)
	silent.Stop()
	o.left -= int64(n)
	if err != nil && o.left != 0 {
		err = fail(ReasonStoreUnavailable, "read %s: it broke off: %w", o.name, err)
	}
	return n, err
}

// Close implements io.Closer.
func (o *remoteObject) Close() error {
	defer o.cancel()
	return o.ReadCloser.Close()
}

func (r *remote) size(ctx context.Context, name string) (int64, error) {
	answer, err := r.ask(ctx, http.MethodHead, name)
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close()
	size, err := strconv.ParseInt(answer.Header.Get("Content-Length"), 10, 64)
	if err != nil {
		return 0, fail(ReasonStoreUnavailable, "look at %s of %s: it has no length", name, r.url)
	}
	return size, nil
}

func (r *remote) list(context.Context) ([]string, error) { return nil, r.readOnly() }

func (r *remote) put(context.Context, string, int64, io.Reader) error { return r.readOnly() }

func (r *remote) remove(context.Context, string) error { return r.readOnly() }

func (r *remote) close() {}

func (r *remote) readOnly() error {
	return refuse(ReasonInvalid, "%s can only be read", r.url)
}
