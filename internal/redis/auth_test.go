package redis_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/example/redis-operator/internal/redis"
	"github.com/example/redis-operator/internal/redis/redistest"
)

func TestWrongPassword(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		s := redistest.Start(t, v, "--requirepass", "r1ght")
		observer := client(t, s, "r1ght")
		cases := []struct {
			name   string
			dialer redis.Dialer
			code   string
		}{
			{"none", redis.Dialer{}, "NOAUTH"},
			{"wrong", redis.Dialer{Password: "wr0ng"}, "WRONGPASS"},
			{"no such user", redis.Dialer{Username: "operator", Password: "r1ght"}, "WRONGPASS"},
		}
		for _, c := range cases {
			ok(t, observer.ACLLogReset(t.Context()).Err())
			n := c.dialer.Open(s.Addr())
			_, err := n.Probe(t.Context())
			refused(t, err, c.code)
			if !redis.IsAuth(err) || strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "r1ght") {
				t.Errorf("%s: %q", c.name, err)
			}
			var e *redis.Error
			if !errors.As(err, &e) || e.Node != s.Addr() || e.Command != "connect" {
				t.Errorf("%s: %#v", c.name, err)
			}
			_ = n.Close()
			log, err := observer.ACLLog(t.Context(), 10).Result()
			ok(t, err)
			if want := map[string]int{"NOAUTH": 0, "WRONGPASS": 1}[c.code]; len(log) != want {
				t.Errorf("%s: %d failed logins in the server's log, want %d", c.name, len(log), want)
			}
		}
		right := redis.Dialer{Password: "r1ght"}.Open(s.Addr())
		defer func() { _ = right.Close() }()
		if _, err := right.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// operatorACL is everything that this package needs of a server. The default user
// is off, as a test of who logs in.
const operatorACL = `user default off
user operator on >0perator resetchannels -@all +cluster +info +config|get +config|set
user watcher on >w4tcher resetchannels -@all +cluster|info +cluster|nodes +cluster|myid +info
`

func TestACLUser(t *testing.T) {
	eachVersion(t, func(t *testing.T, v redistest.Version) {
		s := redistest.New(t, v, "--aclfile", "users.acl")
		ok(t, os.WriteFile(filepath.Join(s.Dir, "users.acl"), []byte(operatorACL), 0o600))
		s.Run()
		n := redis.Dialer{Username: "operator", Password: "0perator"}.Open(s.Addr())
		defer func() { _ = n.Close() }()
		id, err := n.MyID(t.Context())
		ok(t, err)
		state, err := n.Probe(t.Context())
		ok(t, err)
		if state.ID != id || len(id) != 40 {
			t.Errorf("MYID %q, NODES %q", id, state.ID)
		}
		all := redis.SlotRange{First: 0, Last: redis.SlotCount - 1}
		ok(t, n.SetConfigEpoch(t.Context(), 1))
		ok(t, n.AddSlots(t.Context(), all))
		ok(t, n.ConfigSet(t.Context(), map[string]string{"maxmemory": "1gb"}))
		if _, err := n.ConfigGet(t.Context(), "maxmemory"); err != nil {
			t.Error(err)
		}
		if _, err := n.CountKeysInSlots(t.Context(), all); err != nil {
			t.Error(err)
		}

		watcher := redis.Dialer{Username: "watcher", Password: "w4tcher"}.Open(s.Addr())
		defer func() { _ = watcher.Close() }()
		if _, err := watcher.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		err = watcher.Failover(t.Context(), redis.Takeover)
		refused(t, err, "NOPERM")
		if !redis.IsAuth(err) || !strings.Contains(err.Error(), "CLUSTER FAILOVER") {
			t.Errorf("got %q", err)
		}
	})
}
