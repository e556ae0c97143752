package metrics

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var (
	verbLabel     = label{name: "verb", values: []string{"get", "list", "watch", "create", "apply", "patch", "update", "delete", Other}}
	resourceLabel = label{name: "resource", values: []string{
		"redisclusters", "redisclusters/status", "redisbackups", "redisbackups/status", "statefulsets", "controllerrevisions", "services", "configmaps",
		"secrets", "pods", "pods/eviction", "persistentvolumeclaims", "persistentvolumes", "nodes", "namespaces", "jobs", "poddisruptionbudgets", "networkpolicies",
		"storageclasses", "events", "leases", "tokenreviews", "subjectaccessreviews", Other,
	}}
	apiResult = label{name: "result", values: []string{"ok", "not_found", "conflict", "rejected", "throttled", "server_error", "no_answer", Other}}

	apiDuration = histogram("api_request_duration_seconds",
		"time from sending a request to the API server to the head of its answer; for a watch, until it is open", quick, verbLabel, resourceLabel, apiResult)
	apiRejections = counter("api_rejections_total",
		"writes that validation, admission or authorisation has refused (400, 403, 422)", verbLabel, resourceLabel)
	apiThrottle = histogram("api_throttle_wait_seconds",
		"time that the API server told the operator to wait before it asks again (429 with Retry-After); the operator has no limit of its own", quick)
	apiInPass = histogram("pass_api_requests", "requests to the API server by one pass", counts, controllerLabel)
)

// Transport measures the requests that go through it to the API server. Give it
// to rest.Config.Wrap.
func Transport(next http.RoundTripper) http.RoundTripper {
	if off.Load() {
		return next
	}
	return &transport{next: next}
}

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	verb, resource := request(r)
	pass := fromContext(r.Context())
	kind := reading
	if writes(verb) {
		kind = writing
	}
	pass.begin(kind)
	start := time.Now()
	response, err := t.next.RoundTrip(r)
	took := time.Since(start)
	pass.end(kind)
	pass.requested()
	if resource == "" {
		return response, err // discovery, health: no object's request
	}
	result := "no_answer"
	if err == nil {
		result = resultOf(response.StatusCode)
	}
	apiDuration.WithLabelValues(verb, resource, result).Observe(took.Seconds())
	switch {
	case result == "rejected" && writes(verb):
		apiRejections.WithLabelValues(verb, resource).Inc()
	case result == "throttled":
		// Without Retry-After it is a disruption budget's no, and nobody waits.
		if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
			wait := time.Duration(seconds) * time.Second
			apiThrottle.WithLabelValues().Observe(wait.Seconds())
			pass.throttled(wait)
		}
	}
	return response, err
}

// WrappedRoundTripper is the transport below, which client-go looks for.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func resultOf(code int) string {
	switch {
	case code < 400:
		return "ok"
	case code == http.StatusNotFound:
		return "not_found"
	case code == http.StatusConflict:
		return "conflict"
	case code == http.StatusBadRequest, code == http.StatusForbidden, code == http.StatusUnprocessableEntity:
		return "rejected"
	case code == http.StatusTooManyRequests:
		return "throttled"
	case code >= 500:
		return "server_error"
	}
	return Other
}

func writes(verb string) bool { return verb != "get" && verb != "list" && verb != "watch" }

// request reads verb and resource from a request; no resource when it is for no
// object.
func request(r *http.Request) (verb, resource string) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(words) > 2 && words[0] == "api":
		words = words[2:]
	case len(words) > 3 && words[0] == "apis":
		words = words[3:]
	default:
		return verbOf(r, true), ""
	}
	if words[0] == "namespaces" && len(words) > 2 {
		words = words[2:]
	}
	resource = words[0]
	if len(words) > 2 {
		resource += "/" + words[2]
	}
	return verbOf(r, len(words) > 1), resourceLabel.of(resource)
}

func verbOf(r *http.Request, named bool) string {
	switch r.Method {
	case http.MethodGet:
		switch {
		case r.URL.Query().Get("watch") == "true":
			return "watch"
		case named:
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	case http.MethodPatch:
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			return "apply"
		}
		return "patch"
	}
	return Other
}

// passKey finds a pass in the context of its requests.
type passKey struct{}

func fromContext(ctx context.Context) *Pass {
	p, _ := ctx.Value(passKey{}).(*Pass) // nil outside of a pass
	return p
}
