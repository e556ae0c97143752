package backup

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/example/redis-operator/internal/redis/redistest"
)

const (
	accessKey = "operator"
	secretKey = "not-a-secret-of-anybody"
)

// s3Server is versitygw on loopback, with an empty bucket "backups".
type s3Server struct {
	endpoint string
	cmd      *exec.Cmd
	admin    *minio.Client
}

func startS3(t *testing.T) *s3Server {
	t.Helper()
	program := os.Getenv("VERSITYGW")
	if program == "" {
		t.Fatal("VERSITYGW is not set, so there is no S3 server to test against: run `make test`")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := &s3Server{endpoint: "http://" + address}
	s.cmd = exec.Command(program, "--port", address, "--access", accessKey, "--secret", secretKey, "--quiet", "posix", "--sidecar", t.TempDir(), t.TempDir())
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	s.admin, err = minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, func() error {
		return s.admin.MakeBucket(t.Context(), "backups", minio.MakeBucketOptions{})
	})
	return s
}

// destination is the bucket, with a login.
func (s *s3Server) destination(t *testing.T, secret string) Destination {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{"accessKeyID": accessKey, "secretAccessKey": secret} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Destination{S3: &S3{Bucket: "backups", Prefix: "some/prefix", Endpoint: s.endpoint, PathStyle: true, CredentialsDir: dir}}
}

// left are the objects and unfinished uploads in the bucket.
func (s *s3Server) left(t *testing.T) []string {
	t.Helper()
	var names []string
	for o := range s.admin.ListObjects(t.Context(), "backups", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, o.Key)
	}
	for o := range s.admin.ListIncompleteUploads(t.Context(), "backups", "", true) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		names = append(names, "upload of "+o.Key)
	}
	return names
}

// fillLarge writes keys of 2 MB that cannot be compressed.
func fillLarge(t *testing.T, servers []*redistest.Server, keys int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 2<<20)
	for i := range keys {
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		try(t, servers, "SET", fmt.Sprint("large", i), value)
	}
}

func TestS3(t *testing.T) {
	v := redistest.Versions(t)[0]
	servers := cluster(t, v)
	fill(t, servers)
	// More than one part, so that uploads are multipart.
	fillLarge(t, servers, 20)
	want := content(t, servers[:3])
	s := startS3(t)
	d := s.destination(t, secretKey)
	for _, compression := range []string{zstdCompression, noCompression} {
		task := backupTask(t, d, servers)
		task.Compression = compression
		r := Do(t.Context(), task)
		if r.Reason != "" || r.Keys != int64(len(want)) || r.Location != "s3://backups/some/prefix/b1" {
			t.Fatalf("%s: %+v", compression, r)
		}
		if again := Do(t.Context(), task); again != r {
			t.Errorf("a second run: %+v, want %+v", again, r)
		}
		restores(t, task, v, true, want)
		task.Operation = OperationDelete
		for range 2 {
			if r := Do(t.Context(), task); r.Reason != "" {
				t.Fatalf("delete: %+v", r)
			}
		}
		if left := s.left(t); len(left) > 0 {
			t.Fatalf("%q is left", left)
		}
	}
}

func TestS3IsRefused(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	s := startS3(t)
	silent := redistest.Address(t).String() + ":9"
	cases := map[string]struct {
		change    func(d *S3)
		reason    Reason
		permanent bool
		says      string
	}{
		"wrong secret":   {func(d *S3) { d.CredentialsDir = s.destination(t, "wrong").S3.CredentialsDir }, ReasonAccessDenied, true, "refuses the credentials"},
		"no such bucket": {func(d *S3) { d.Bucket = "nowhere" }, ReasonNoBucket, true, `bucket "nowhere" does not exist`},
		"nobody there":   {func(d *S3) { d.Endpoint = "http://" + silent }, ReasonStoreUnavailable, false, "connection refused"},
		"no such host":   {func(d *S3) { d.Endpoint = "http://store.invalid" }, ReasonStoreUnavailable, false, "store.invalid"},
		"no credentials": {func(d *S3) { d.CredentialsDir = t.TempDir() }, ReasonAccessDenied, true, "accessKeyID"},
		"no CA":          {func(d *S3) { d.CAFile = filepath.Join(d.CredentialsDir, "accessKeyID") }, ReasonInvalid, true, "no PEM certificate"},
		"https of http":  {func(d *S3) { d.Endpoint = strings.Replace(d.Endpoint, "http:", "https:", 1) }, ReasonStoreUnavailable, false, "HTTPS"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			for _, op := range []Operation{OperationBackup, OperationInspect} {
				task := backupTask(t, s.destination(t, secretKey), servers)
				task.Operation, task.Engine, task.Version = op, "Redis", "8.0"
				tt.change(task.Destination.S3)
				start := time.Now()
				r := Do(t.Context(), task)
				if r.Reason != tt.reason || r.Permanent != tt.permanent || !strings.Contains(r.Message, tt.says) {
					t.Errorf("%s: %+v, want %s with %q", op, r, tt.reason, tt.says)
				}
				if strings.Contains(r.Message, secretKey) {
					t.Errorf("a secret is in %q", r.Message)
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("%s took %s", op, took)
				}
			}
		})
	}
	t.Run("no such backup", func(t *testing.T) {
		task := backupTask(t, s.destination(t, secretKey), servers)
		task.Operation, task.Engine, task.Version = OperationInspect, "Redis", "8.0"
		if r := Do(t.Context(), task); r.Reason != ReasonNotFound || !r.Permanent {
			t.Errorf("%+v", r)
		}
	})
}

// TestS3DiesMidway cuts the way to the store in the middle of an upload: what is
// left of it goes with the next attempt, which is the one that a Job makes.
func TestS3DiesMidway(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	fillLarge(t, servers, 30)
	s := startS3(t)
	proxy := &cutter{to: s.endpoint, after: 3}
	front := http.Server{Handler: proxy}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = front.Serve(l) }()
	t.Cleanup(func() { _ = front.Close() })
	d := s.destination(t, secretKey)
	task := backupTask(t, d, servers)
	task.Compression = noCompression
	task.Destination.S3.Endpoint = "http://" + l.Addr().String()
	r := Do(t.Context(), task)
	if r.Reason != ReasonStoreUnavailable || r.Permanent {
		t.Errorf("%+v, want StoreUnavailable", r)
	}
	if proxy.cut.Load() == 0 {
		t.Fatal("nothing was cut off")
	}
	if len(s.left(t)) == 0 {
		t.Log("nothing was left in the store")
	}
	proxy.after = -1 // the store is back
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Errorf("after the store came back: %+v", r)
	}
	for _, name := range s.left(t) {
		if strings.HasPrefix(name, "upload") {
			t.Errorf("%s is left", name)
		}
	}
}

// cutter passes requests on, and refuses everything after so many parts.
type cutter struct {
	to    string
	after int
	parts atomic.Int32
	cut   atomic.Int32
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") {
		c.parts.Add(1)
	}
	if c.after >= 0 && int(c.parts.Load()) > c.after {
		c.cut.Add(1)
		if h, ok := w.(http.Hijacker); ok {
			if conn, _, err := h.Hijack(); err == nil {
				_ = conn.Close()
			}
		}
		return
	}
	to, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, c.to+r.URL.RequestURI(), r.Body)
	if err != nil {
		return
	}
	to.Header, to.Host, to.ContentLength = r.Header, r.Host, r.ContentLength
	answer, err := http.DefaultTransport.RoundTrip(to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	for k, v := range answer.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}
