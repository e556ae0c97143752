package redis

import (
	"testing"
	"time"
)

// A server may open its port between the two dials, and then it is not dead.
func TestReachDialsTwiceAtMost(t *testing.T) {
	cases := []struct {
		dials []Reachability
		want  Reachability
	}{
		{[]Reachability{Refused, Refused}, Refused},
		{[]Reachability{Refused, Listening}, Listening},
		{[]Reachability{Refused, Unknown}, Unknown},
		{[]Reachability{Listening}, Listening},
		{[]Reachability{Unknown}, Unknown},
	}
	for _, c := range cases {
		rest := c.dials
		begin := time.Now()
		got := reach(t.Context(), func() Reachability {
			next := rest[0]
			rest = rest[1:]
			return next
		})
		if got != c.want || len(rest) > 0 {
			t.Errorf("%v: got %s with %d dials left, want %s", c.dials, got, len(rest), c.want)
		}
		if took := time.Since(begin); len(c.dials) == 2 && took < refusedAgain {
			t.Errorf("%v: took %s, want %s between the dials", c.dials, took, refusedAgain)
		}
	}
}
