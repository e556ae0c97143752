package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

// A server that does not answer costs the Dialer's timeout, no more, and the next
// command gets a new connection.
func TestTimeout(t *testing.T) {
	s := redistest.Start(t, redistest.Versions(t)[0])
	n := redis.Dialer{Timeout: 200 * time.Millisecond}.Open(s.Addr())
	defer func() { _ = n.Close() }()
	for _, connected := range []bool{false, true} {
		if connected {
			if _, err := n.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.Freeze()
		begin := time.Now()
		_, err := n.Probe(t.Context())
		took := time.Since(begin)
		s.Thaw()
		if !errors.Is(err, context.DeadlineExceeded) || redis.IsServer(err) {
			t.Errorf("got %v", err)
		}
		if took < 200*time.Millisecond || took > 2*time.Second {
			t.Errorf("took %s", took)
		}
	}
	if _, err := n.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestContextEndsACommand(t *testing.T) {
	s := redistest.Start(t, redistest.Versions(t)[0])
	n := redis.Dialer{Timeout: patience}.Open(s.Addr())
	defer func() { _ = n.Close() }()
	s.Freeze()
	defer s.Thaw()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	if _, err := n.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancellation: %v", err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("cancelled, but it took %s", took)
	}
}

func TestNobodyListens(t *testing.T) {
	addr := netip.AddrPortFrom(redistest.Address(t), redistest.Port).String()
	n := redis.Dialer{}.Open(addr)
	for range 2 {
		_, err := n.Probe(t.Context())
		var e *redis.Error
		if !errors.As(err, &e) || e.Node != addr || e.Command != "connect" || !errors.Is(err, syscall.ECONNREFUSED) || redis.IsServer(err) {
			t.Errorf("got %#v", err)
		}
	}
	ok(t, n.Close())
	if _, err := n.Probe(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Whatever happened to a Node, nothing of it runs on after Close.
func TestNothingLeftAfterClose(t *testing.T) {
	s := redistest.Start(t, redistest.Versions(t)[0], "--requirepass", "r1ght")
	closed := netip.AddrPortFrom(redistest.Address(t), redistest.Port).String()
	before := runtime.NumGoroutine()
	for range 20 {
		for _, n := range []*redis.Node{
			redis.Dialer{Password: "r1ght"}.Open(s.Addr()),
			redis.Dialer{Password: "wr0ng"}.Open(s.Addr()),
			redis.Dialer{}.Open(closed),
		} {
			ctx, cancel := context.WithCancel(t.Context())
			_, _ = n.Probe(ctx)
			cancel()
			_, _ = n.Probe(ctx)
			ok(t, n.Close())
			ok(t, n.Close())
		}
	}
	// The dials' own goroutines end a moment after their dial.
	redistest.Eventually(t, 500*time.Millisecond, func() error {
		if now := runtime.NumGoroutine(); now > before {
			stacks := make([]byte, 1<<16)
			return fmt.Errorf("%d goroutines, %d before:\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
	observer := client(t, s, "r1ght")
	if list := observer.InfoMap(t.Context(), "clients").Val()["Clients"]["connected_clients"]; list != "1" {
		t.Errorf("%s connections at the server, want the observer's own", list)
	}
}

func TestNodeFromManyGoroutines(t *testing.T) {
	m := start(t, redistest.Versions(t)[0])
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				if s, err := m.Probe(t.Context()); err != nil || s.ID != m.id {
					t.Errorf("got %+v, %v", s, err)
				}
			}
		})
	}
	group.Wait()
}

// A server without cluster mode is an error, in its own words.
func TestNoCluster(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		s := redistest.Start(t, v, "--cluster-enabled", "no")
		n := redis.Dialer{}.Open(s.Addr())
		defer func() { _ = n.Close() }()
		_, err := n.Probe(t.Context())
		refused(t, err, "ERR")
	})
}

func TestTLS(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		s := redistest.New(t, v)
		pool := certificate(t, s)
		s.Run("--tls-port", "6380", "--tls-cert-file", "tls.crt", "--tls-key-file", "tls.key", "--tls-ca-cert-file", "tls.crt", "--tls-auth-clients", "no")
		addr := netip.AddrPortFrom(s.IP, 6380).String()
		n := redis.Dialer{TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}.Open(addr)
		defer func() { _ = n.Close() }()
		for range 2 {
			if state, err := n.Probe(t.Context()); err != nil || state.Version != v.Release {
				t.Errorf("got %+v, %v", state, err)
			}
		}
		stranger := redis.Dialer{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}.Open(addr)
		defer func() { _ = stranger.Close() }()
		var unknown x509.UnknownAuthorityError
		if _, err := stranger.Probe(t.Context()); !errors.As(err, &unknown) {
			t.Errorf("with a certificate of nobody's: %v", err)
		}
	})
}

// certificate puts a self-signed certificate for the server's address into its
// folder.
func certificate(t *testing.T, s *redistest.Server) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{s.IP.AsSlice()}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ok(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	ok(t, err)
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		ok(t, os.WriteFile(filepath.Join(s.Dir, name), pem.EncodeToMemory(block), 0o600))
	}
	parsed, err := x509.ParseCertificate(der)
	ok(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// BenchmarkProbe is a pass's look at a node: dial, login, one exchange, close.
func BenchmarkProbe(b *testing.B) {
	for _, v := range redistest.Versions(b) {
		b.Run(v.String(), func(b *testing.B) {
			s := redistest.Start(b, v, "--requirepass", "r1ght")
			d := redis.Dialer{Password: "r1ght"}
			b.ReportAllocs()
			for b.Loop() {
				n := d.Open(s.Addr())
				if _, err := n.Probe(b.Context()); err != nil {
					b.Fatal(err)
				}
				_ = n.Close()
			}
		})
	}
}

// BenchmarkProbeAgain is a second look over the same connection.
func BenchmarkProbeAgain(b *testing.B) {
	for _, v := range redistest.Versions(b) {
		b.Run(v.String(), func(b *testing.B) {
			s := redistest.Start(b, v)
			n := redis.Dialer{}.Open(s.Addr())
			defer func() { _ = n.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.Probe(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
