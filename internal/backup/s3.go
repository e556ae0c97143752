package backup

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// smallestPart is what S3 takes. It takes s3Parts of them, so that objects of more
	// than some 25 GB get larger ones. s3AtOnce are held in memory: one is sent while
	// the next one comes.
	smallestPart = 5 << 20
	s3Parts      = 10000
	s3AtOnce     = 2
	// s3Answer bounds the wait for the head of an answer, s3Attempts how often a
	// request is sent: together the time until a silent server is given up.
	s3Answer   = 30 * time.Second
	s3Connect  = 5 * time.Second
	s3Attempts = 3
	// s3Cleanup bounds the removal of what a failure left.
	s3Cleanup = 20 * time.Second
)

// bucket keeps a backup under a prefix of an S3 bucket.
type bucket struct {
	client *minio.Client
	name   string
	prefix string // with a slash at its end
}

func openS3(d S3, id string) (store, error) {
	login, err := readCredentials(d.CredentialsDir)
	if err != nil {
		return nil, err
	}
	transport, err := s3Transport(d.CAFile)
	if err != nil {
		return nil, err
	}
	endpoint := d.Endpoint
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.Trim(u.Path, "/") != "" {
		return nil, refuse(ReasonInvalid, "the endpoint %q is no http or https URL of a host", endpoint)
	}
	lookup := minio.BucketLookupAuto
	if d.PathStyle {
		lookup = minio.BucketLookupPath
	}
	region := d.Region
	if region == "" && d.Endpoint != "" {
		region = "us-east-1" // what servers without regions expect; Amazon is asked for the bucket's
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: login, Secure: u.Scheme == "https", Region: region,
		BucketLookup: lookup, Transport: awaiting{transport}, MaxRetries: s3Attempts,
	})
	if err != nil {
		return nil, refuse(ReasonInvalid, "the S3 destination: %w", err)
	}
	return &bucket{client: client, name: d.Bucket, prefix: path.Join(d.Prefix, id) + "/"}, nil
}

func readCredentials(dir string) (*credentials.Credentials, error) {
	var value [3]string
	for i, name := range []string{"accessKeyID", "secretAccessKey", "sessionToken"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && (i < 2 || !errors.Is(err, fs.ErrNotExist)) {
			return nil, refuse(ReasonAccessDenied, "the credentials' Secret has no readable key %s: %w", name, err)
		}
		if value[i] = strings.TrimSpace(string(data)); value[i] == "" && i < 2 {
			return nil, refuse(ReasonAccessDenied, "the key %s of the credentials' Secret is empty", name)
		}
	}
	return credentials.NewStaticV4(value[0], value[1], value[2]), nil
}

func s3Transport(caFile string) (*http.Transport, error) {
	t, err := minio.DefaultTransport(true)
	if err != nil {
		return nil, fail(ReasonStoreUnavailable, "set up TLS: %w", err)
	}
	dial := (&net.Dialer{Timeout: s3Connect, KeepAlive: 15 * time.Second}).DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return writeLimit{conn}, nil
	}
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = s3Connect, s3Answer
	// Small buffers: several streams share little memory.
	t.WriteBufferSize, t.ReadBufferSize = 64<<10, 64<<10
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, refuse(ReasonInvalid, "the CA of the S3 server: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, refuse(ReasonInvalid, "the CA of the S3 server: %s holds no PEM certificate", caFile)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// writeLimit fails a write that a server does not take: the library waits for an
// answer only once it has sent all.
type writeLimit struct{ net.Conn }

// Write implements net.Conn.
func (c writeLimit) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(s3Answer)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// awaiting has a request that changes something end also when its context ends first.
// Nobody aborts an upload whose begin was answered to nobody, and a part that ends
// after the abort of its upload can stay behind, or bring the upload back (Amazon S3,
// AbortMultipartUpload; versitygw makes its folder anew).
type awaiting struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a awaiting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return a.RoundTripper.RoundTrip(r)
	}
	ctx, cancel := lasting(r.Context(), s3Cleanup)
	answer, err := a.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = body{answer.Body, cancel}
	return answer, nil
}

// body is the end of a request whose context ends with it.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// lasting is a context that ends a while after its parent.
func lasting(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	lasts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(after, cancel)
		context.AfterFunc(lasts, func() { timer.Stop() })
	})
	return lasts, func() {
		stop()
		cancel()
	}
}

func (b *bucket) location() string {
	return "s3://" + path.Join(b.name, b.prefix)
}

// partSize leaves room for twice as many bytes as are expected at most: data grow.
func partSize(atMost int64) uint64 {
	const mib = 1 << 20
	return uint64(max(smallestPart, (2*atMost/s3Parts/mib+1)*mib))
}

func (b *bucket) put(ctx context.Context, name string, atMost int64, r io.Reader) error {
	in := &source{Reader: contextReader{ctx, r}}
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, in, -1, minio.PutObjectOptions{
		PartSize: partSize(atMost), ContentType: "application/octet-stream", NumThreads: s3AtOnce, ConcurrentStreamParts: true,
		// Each part has a CRC32C, and the manifest, which is signed, the SHA-256 of each
		// object: one more for each part cost both sides a fifth of their time.
		DisableContentSha256: name != ManifestName,
	})
	if err == nil {
		return nil
	}
	// The library aborts the upload too, but not once its context has ended.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), s3Cleanup)
	defer cancel()
	_ = b.client.RemoveIncompleteUpload(cleanup, b.name, b.prefix+name)
	switch {
	case in.err != nil:
		return in.err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return b.failure("write "+name, err)
}

func (b *bucket) get(ctx context.Context, name string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err == nil {
		_, err = object.Stat() // the request is sent by the first use
	}
	if err != nil {
		cancel()
		return nil, b.failure("read "+name, err)
	}
	return &s3Object{Object: object, bucket: b, name: name, cancel: cancel}, nil
}

// s3Object gives errors in the middle of an object their reason, and does not
// wait for a server that has fallen silent.
type s3Object struct {
	*minio.Object
	bucket *bucket
	name   string
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (o *s3Object) Close() error {
	defer o.cancel()
	return o.Object.Close()
}

// Read implements io.Reader.
func (o *s3Object) Read(p []byte) (int, error) {
	silent := time.AfterFunc(s3Answer, o.cancel)
	n, err := o.Object.Read(p)
	silent.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.bucket.failure("read "+o.name, err)
	}
	return n, err
}

func (b *bucket) size(ctx context.Context, name string) (int64, error) {
	info, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return 0, b.failure("look at "+name, err)
	}
	return info.Size, nil
}

func (b *bucket) list(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.failure("list the objects", o.Err)
		}
		found[strings.TrimPrefix(o.Key, b.prefix)] = true
	}
	for o := range b.client.ListIncompleteUploads(ctx, b.name, b.prefix, true) {
		if o.Err != nil {
			return nil, b.failure("list the uploads", o.Err)
		}
		found[strings.TrimPrefix(o.Key, b.prefix)] = true
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	return names, nil
}

func (b *bucket) remove(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return b.failure("remove "+name, err)
	}
	if err := b.client.RemoveIncompleteUpload(ctx, b.name, b.prefix+name); err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
		return b.failure("abort the upload of "+name, err)
	}
	return nil
}

func (b *bucket) close() {}

// failure gives an error of the store its reason.
func (b *bucket) failure(doing string, err error) error {
	reply := minio.ToErrorResponse(err)
	where := fmt.Sprintf("%s in %s", doing, b.location())
	switch reply.Code {
	case minio.NoSuchBucket:
		return refuse(ReasonNoBucket, "%s: the bucket %q does not exist: create it or correct the name", where, b.name)
	case minio.NoSuchKey:
		return refuse(ReasonNotFound, "%s: there is no such object", where)
	case minio.AccessDenied, "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		return refuse(ReasonAccessDenied, "%s: the store refuses the credentials of the Secret (%s)", where, reply.Code)
	case "AuthorizationHeaderMalformed", "PermanentRedirect", minio.InvalidRegion:
		return refuse(ReasonInvalid, "%s: the bucket is in another region than the destination says: set region (%s: %s)", where, reply.Code, reply.Message)
	case "XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "XAmzQuotaExceeded":
		return fail(ReasonStoreFull, "%s: there is no room in the store: %s", where, reply.Message)
	}
	if reply.StatusCode == http.StatusNotFound && b.prefix != "" && reply.Code == "" {
		return refuse(ReasonNotFound, "%s: there is no such object", where)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		err = fmt.Errorf("%w: name a Secret with its certificate as caSecretName", err)
	}
	return fail(ReasonStoreUnavailable, "%s at %s: %w", where, b.client.EndpointURL().Host, err)
}
