package metrics

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
)

// TestRequestsAreNamedByVerbAndResource.
func TestRequestsAreNamedByVerbAndResource(t *testing.T) {
	for _, c := range []struct{ method, path, content, verb, resource string }{
		{"GET", "/api/v1/namespaces/shop/secrets/orders-auth", "", "get", "secrets"},
		{"GET", "/api/v1/namespaces/shop/pods?labelSelector=a", "", "list", "pods"},
		{"GET", "/api/v1/pods?watch=true", "", "watch", "pods"},
		{"POST", "/api/v1/namespaces/shop/pods/orders-0-0/eviction", "", "create", "pods/eviction"},
		{"PATCH", "/apis/apps/v1/namespaces/shop/statefulsets/orders-0", "application/apply-patch+yaml", "apply", "statefulsets"},
		{"PATCH", "/apis/redis.example.com/v1/namespaces/shop/redisclusters/orders/status", "application/merge-patch+json", "patch", "redisclusters/status"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/system/leases/x", "", "update", "leases"},
		{"DELETE", "/apis/batch/v1/namespaces/shop/jobs/x", "", "delete", "jobs"},
		{"GET", "/apis/storage.k8s.io/v1/storageclasses/fast", "", "get", "storageclasses"},
		{"GET", "/api/v1/namespaces/shop", "", "get", "namespaces"},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", "", "create", "tokenreviews"},
		{"GET", "/apis/example.com/v1/namespaces/shop/gadgets/x", "", "get", Other},
		{"GET", "/apis/apps/v1", "", "get", ""},
		{"GET", "/version", "", "get", ""},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Content-Type", c.content)
		if verb, resource := request(r); verb != c.verb || resource != c.resource {
			t.Errorf("%s %s is %s of %q, want %s of %q", c.method, c.path, verb, resource, c.verb, c.resource)
		}
	}
}

// TestAnswersAreCountedByResult, with what a server refuses or puts off.
func TestAnswersAreCountedByResult(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.Header.Get("Want"))
		if err != nil {
			t.Error(err)
		}
		if wait := r.Header.Get("Want-Wait"); wait != "" {
			w.Header().Set("Retry-After", wait)
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(http.DefaultTransport)}
	ask := func(method, url, want, wait string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+"/api/v1/namespaces/shop/configmaps/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Want", want)
		r.Header.Set("Want-Wait", wait)
		if response, err := client.Do(r); err == nil {
			_ = response.Body.Close()
		}
	}
	for code, result := range map[string]string{
		"200": "ok", "404": "not_found", "409": "conflict", "422": "rejected", "403": "rejected", "429": "throttled", "503": "server_error", "405": Other,
	} {
		answered := since(t, "api_request_duration_seconds", "verb=delete", "resource=configmaps", "result="+result)
		refused := since(t, "api_rejections_total", "verb=delete", "resource=configmaps")
		held := since(t, "api_throttle_wait_seconds")
		ask(http.MethodDelete, server.URL, code, "")
		if _, n := answered(); n != 1 {
			t.Errorf("%s: %d answers are %s, want 1", code, n, result)
		}
		want := 0.0
		if result == "rejected" {
			want = 1
		}
		grew(t, code+": refused", refused, want)
		grew(t, code+": put off", held, 0)
	}
	held := since(t, "api_throttle_wait_seconds")
	ask(http.MethodDelete, server.URL, "429", "2")
	grew(t, "put off", held, 2)
	refused := since(t, "api_rejections_total")
	ask(http.MethodGet, server.URL, "403", "")
	grew(t, "a read that is refused", refused, 0)
	lost := since(t, "api_request_duration_seconds", "verb=delete", "resource=configmaps", "result=no_answer")
	ask(http.MethodDelete, "http://127.0.0.1:1", "200", "")
	if _, n := lost(); n != 1 {
		t.Errorf("%d requests without an answer, want 1", n)
	}
}
