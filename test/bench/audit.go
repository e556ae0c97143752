package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/example/redis-operator/test/kube"
)

// class is what a request of the operator is counted as.
type class string

const (
	// read and change are the requests that the operator makes for its clusters.
	read   class = "read"
	change class = "write"
	// watch is the start or the renewal of a watch, every five to ten minutes.
	watch class = "watch"
	// lease is the leader election.
	lease class = "lease"
	// review is the metrics endpoint asking who is scraping it.
	review class = "review"
)

// request is one line of the audit log, as far as it is needed here.
type request struct {
	AuditID string `json:"auditID"`
	// Verb is get, list, watch, create, update, patch, delete, deletecollection.
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Object *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

func (r *request) class() class {
	if r.Object != nil {
		switch r.Object.Resource {
		case "leases":
			return lease
		case "tokenreviews", "subjectaccessreviews":
			return review
		}
	}
	switch r.Verb {
	case "watch":
		return watch
	case "get", "list":
		return read
	}
	return change
}

// String names the request for people.
func (r *request) String() string {
	if r.Object == nil {
		return r.Verb + " " + r.RequestURI
	}
	s := r.Verb + " " + r.Object.Resource
	if r.Object.Subresource != "" {
		s += "/" + r.Object.Subresource
	}
	return fmt.Sprintf("%s %s (%d)", s, r.Object.Name, r.ResponseStatus.Code)
}

// auditLog reads what the API server appends to its audit log.
type auditLog struct{ *os.File }

// openAuditLog opens an audit log of JSON lines.
func openAuditLog(path string) (*auditLog, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the audit log, by which requests are counted: %w", err)
	}
	return &auditLog{f}, nil
}

// skip leaves out everything that has been logged so far.
func (a *auditLog) skip() error {
	if _, err := a.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	return nil
}

// operatorRequests are the operator's requests since the last look, each once.
func (a *auditLog) operatorRequests() ([]request, error) {
	data, err := io.ReadAll(a)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	// The last line may still be being written: it is for the next look.
	end := bytes.LastIndexByte(data, '\n') + 1
	if _, err := a.Seek(int64(end-len(data)), io.SeekCurrent); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	if err := a.stillThere(); err != nil {
		return nil, err
	}
	return requestsOf(data[:end], kube.OperatorUser)
}

// stillThere fails if the log was rotated away under the reader, because then
// requests would be missing.
func (a *auditLog) stillThere() error {
	open, err := a.Stat()
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	present, err := os.Stat(a.Name())
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	if !os.SameFile(open, present) {
		return errors.New("the audit log was rotated while it was read, so that requests cannot be counted: raise --audit-log-maxsize")
	}
	return nil
}

// requestsOf reads JSON lines and keeps the first of each request of a user: a
// request can be logged at several stages.
func requestsOf(lines []byte, user string) ([]request, error) {
	seen := map[string]bool{}
	var found []request
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var r request
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if r.User.Username != user || seen[r.AuditID] {
			continue
		}
		seen[r.AuditID] = true
		found = append(found, r)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return found, nil
}

// count counts requests by class.
func count(requests []request) map[class]int {
	counts := map[class]int{}
	for i := range requests {
		counts[requests[i].class()]++
	}
	return counts
}

// byVerb counts reads and writes by verb.
func byVerb(requests []request) map[string]int {
	counts := map[string]int{}
	for i := range requests {
		if c := requests[i].class(); c == read || c == change {
			counts[requests[i].Verb]++
		}
	}
	return counts
}
