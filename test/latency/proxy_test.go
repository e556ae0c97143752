//go:build linux

package latency

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// fault is what the proxy does to a request; its zero value does nothing.
type fault struct {
	// delay the request.
	delay time.Duration
	// answer with this code instead of asking, and with Retry-After where retryAfter is set.
	answer, retryAfter int
	// stream is how late each part of the answer comes.
	stream time.Duration
}

// proxy stands before the API server, and speaks to it as its administrator.
type proxy struct {
	url string
	mu  sync.Mutex
	// faults chooses one for a request by verb, as the metrics name them, and path.
	faults func(verb, path string) fault
}

func newProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if target.Scheme == "" {
		target = &url.URL{Scheme: "https", Host: config.Host}
	}
	p := &proxy{}
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if f := p.fault(r.Request); f.stream > 0 && verbOf(r.Request) == "watch" {
				r.Body = late(r.Body, f.stream)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := p.fault(r)
		if verbOf(r) != "watch" || f.stream == 0 {
			<-time.After(f.delay)
		}
		if f.answer == 0 {
			reverse.ServeHTTP(w, r)
			return
		}
		if f.retryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(f.retryAfter))
		}
		w.WriteHeader(f.answer)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// set puts a fault in.
func (p *proxy) set(faults func(verb, path string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = faults
}

func (p *proxy) fault(r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults == nil {
		return fault{}
	}
	return p.faults(verbOf(r), r.URL.Path)
}

func verbOf(r *http.Request) string {
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true":
		return "watch"
	case r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch"):
		return "apply"
	case r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "s") || r.URL.Query().Has("labelSelector")):
		return "list"
	}
	return map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
}

// late gives what a stream holds, each part so much later.
func late(from io.ReadCloser, by time.Duration) io.ReadCloser {
	type part struct {
		data []byte
		due  time.Time
		err  error
	}
	parts := make(chan part, 10000)
	go func() {
		defer close(parts)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			parts <- part{buffer[:n], time.Now().Add(by), err}
			if err != nil {
				return
			}
		}
	}()
	out, in := io.Pipe()
	go func() {
		for p := range parts {
			<-time.After(time.Until(p.due))
			if _, err := in.Write(p.data); err != nil {
				_ = from.Close()
				continue
			}
			if p.err != nil {
				_ = in.CloseWithError(p.err)
			}
		}
	}()
	return struct {
		io.Reader
		io.Closer
	}{out, closer(func() error { _ = out.Close(); return from.Close() })}
}

type closer func() error

func (c closer) Close() error { return c() }
