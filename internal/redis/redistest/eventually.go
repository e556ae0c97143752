package redistest

import (
	"testing"
	"time"
)

// Eventually waits until check returns nil, and fails the test with its last
// error when that takes longer than limit.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", limit, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}
