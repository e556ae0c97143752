package backup

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

func TestPartSize(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for atMost, want := range map[int64]uint64{0: 5 * mib, 10 * gib: 5 * mib, 100 * gib: 21 * mib} {
		if got := partSize(atMost); got != want || int64(got)*s3Parts < 2*atMost {
			t.Errorf("%d bytes for an object of %d, want %d", got, atMost, want)
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
		"another region": {func(d *S3) { d.Region = "eu-north-7" }, ReasonInvalid, true, "set region"},
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
	var dead atomic.Bool
	proxy := &front{to: s.endpoint}
	proxy.onPart = func(part int) { dead.Store(part > 3) }
	proxy.dead = dead.Load
	task := throughFront(t, s, proxy, servers)
	r := Do(t.Context(), task)
	if r.Reason != ReasonStoreUnavailable || r.Permanent {
		t.Errorf("%+v, want StoreUnavailable", r)
	}
	if len(s.left(t)) == 0 {
		t.Error("nothing is left in the store, so there is nothing to clean up")
	}
	proxy.tell(nil)
	dead.Store(false) // the store is back
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Errorf("after the store came back: %+v", r)
	}
	s.holdsOne(t)
}

// holdsOne makes sure that the bucket has one whole backup of three shards and
// nothing else.
func (s *s3Server) holdsOne(t *testing.T) {
	t.Helper()
	if left := s.left(t); len(left) != 4 || !slices.ContainsFunc(left, func(name string) bool { return strings.HasSuffix(name, ManifestName) }) {
		t.Errorf("the bucket has %q", left)
	}
}

// throughFront is a task whose way to the store is a proxy. It does not compress, so
// that an upload has several parts.
func throughFront(t *testing.T, s *s3Server, f *front, servers []*redistest.Server) Task {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	task := backupTask(t, s.destination(t, secretKey), servers)
	task.Compression, task.Destination.S3.Endpoint = noCompression, server.URL
	return task
}

// once gives a function for the first part of all uploads: the data of the first two
// shards are under way then.
func once(do func()) func(int) {
	return func(part int) {
		if part == 1 {
			do()
		}
	}
}

// TestSourceReplicaDies in the middle of its data: its shard is read anew, from the
// primary.
func TestSourceReplicaDies(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	fillLarge(t, servers, 60)
	s := startS3(t)
	task := throughFront(t, s, &front{to: s.endpoint, onPart: once(servers[3].Kill)}, servers)
	if r := Do(t.Context(), task); r.Reason != "" || r.Keys != 60 {
		t.Fatalf("%+v", r)
	}
	st, err := openStore(task.Destination, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := readManifest(t.Context(), st)
	if err != nil || m.Shards[0].SourceRole != "primary" {
		t.Errorf("%v: the first shard was read from a %s", err, m.Shards[0].SourceRole)
	}
	s.holdsOne(t)
}

// TestS3UploadIsGivenUpAsItBegins: the store has not yet said that there is an upload
// when it is given up, and has none afterwards.
func TestS3UploadIsGivenUpAsItBegins(t *testing.T) {
	s := startS3(t)
	proxy := &front{to: s.endpoint, begins: make(chan chan struct{})}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	d := s.destination(t, secretKey)
	d.S3.Endpoint = server.URL
	st, err := openS3(*d.S3, "b1")
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("ended")
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- st.put(ctx, "shard", 100<<20, neverEnding{}) }()
	goOn := <-proxy.begins
	end(ended)
	select {
	case err := <-done:
		t.Errorf("it did not wait for the answer: %v", err)
	case <-time.After(time.Second): // put waits: nothing else is to be seen
	}
	close(goOn)
	if err := <-done; !errors.Is(err, ended) {
		t.Errorf("%v, want %v", err, ended)
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("the bucket has %q", left)
	}
}

// neverEnding are zeros.
type neverEnding struct{}

// Read implements io.Reader.
func (neverEnding) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestSlotsMoveMeanwhile: the backup starts again, and has the new map.
func TestSlotsMoveMeanwhile(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	fillLarge(t, servers, 30)
	empty := 0
	for fmt.Sprint(servers[0].Do("CLUSTER", "COUNTKEYSINSLOT", empty)) != "0" {
		empty++
	}
	s := startS3(t)
	move := func(from, to *redistest.Server) {
		source, target := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
		to.Do("CLUSTER", "SETSLOT", empty, "IMPORTING", source)
		from.Do("CLUSTER", "SETSLOT", empty, "MIGRATING", target)
		for _, server := range []*redistest.Server{to, from, servers[2]} {
			server.Do("CLUSTER", "SETSLOT", empty, "NODE", target)
		}
		agreed(t, servers[:3], fmt.Sprint(target))
	}
	moved := func() { move(servers[0], servers[1]) }
	proxy := &front{to: s.endpoint, onPart: once(moved)}
	task := throughFront(t, s, proxy, servers)
	if r := Do(t.Context(), task); r.Reason != "" || r.Keys != 30 {
		t.Fatalf("%+v", r)
	}
	st, err := openStore(task.Destination, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := readManifest(t.Context(), st)
	if err != nil || !slices.ContainsFunc(m.Shards, func(shard ManifestShard) bool { return slices.Contains(shard.Slots, strconv.Itoa(empty)) }) {
		t.Errorf("%v: no shard has slot %d for itself: %+v", err, empty, m.Shards)
	}
	s.holdsOne(t)

	// They move at every attempt: there is no backup.
	proxy.tell(func(int) { // away and back
		move(servers[1], servers[0])
		move(servers[0], servers[1])
	})
	task.ID = "b2"
	if r := Do(t.Context(), task); r.Reason != ReasonSlotsMoved || r.Permanent {
		t.Errorf("%+v, want SlotsMoved", r)
	}
	s.holdsOne(t)
}

// agreed waits until all know the same epoch of a node that was given a slot. A move
// begun before that may be undone: the new owner takes its epoch for the highest and
// does not raise it, and loses to what the last owner had said.
func agreed(t *testing.T, servers []*redistest.Server, id string) {
	t.Helper()
	redistest.Eventually(t, patience, func() error {
		var epochs []string
		for _, server := range servers {
			for line := range strings.Lines(fmt.Sprint(server.Do("CLUSTER", "NODES"))) {
				if fields := strings.Fields(line); fields[0] == id {
					epochs = append(epochs, fields[6])
				}
			}
		}
		if len(epochs) != len(servers) || len(slices.Compact(epochs)) != 1 {
			return fmt.Errorf("the epochs of %s are %q", id, epochs)
		}
		return nil
	})
}

// TestS3ByTLS: a certificate that nobody knows is refused with what to do, and taken
// when it is named.
func TestS3ByTLS(t *testing.T) {
	servers := cluster(t, redistest.Versions(t)[0])
	s := startS3(t)
	server := httptest.NewTLSServer(&front{to: s.endpoint})
	t.Cleanup(server.Close)
	task := backupTask(t, s.destination(t, secretKey), servers)
	task.Destination.S3.Endpoint = server.URL
	if r := Do(t.Context(), task); r.Reason != ReasonStoreUnavailable || !strings.Contains(r.Message, "caSecretName") {
		t.Errorf("%+v", r)
	}
	task.Destination.S3.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(task.Destination.S3.CAFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := Do(t.Context(), task); r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// front passes requests on to a store.
type front struct {
	to string
	// onPart is told of each part of an upload, counted from 1, before it is passed on;
	// nil for nobody.
	onPart func(part int)
	// begins is sent what the passing on of a request that begins an upload waits for;
	// nil: it does not wait.
	begins chan chan struct{}
	// dead: the connection is cut off. nil: never.
	dead  func() bool
	mu    sync.Mutex
	parts int
}

// part counts a part. Those of several shards come at once.
func (f *front) part() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts++
	if f.onPart != nil {
		f.onPart(f.parts)
	}
}

// tell has somebody else told of parts, while requests may be under way.
func (f *front) tell(onPart func(part int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onPart = onPart
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") {
		f.part()
	}
	if r.Method == http.MethodPost && r.URL.Query().Has("uploads") && f.begins != nil {
		goOn := make(chan struct{})
		f.begins <- goOn
		<-goOn
	}
	if f.dead != nil && f.dead() {
		panic(http.ErrAbortHandler)
	}
	to, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, f.to+r.URL.RequestURI(), r.Body)
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
