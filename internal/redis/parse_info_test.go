package redis

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// infoOf parses a captured INFO of each version.
func infoOf(t *testing.T, name string, check func(t *testing.T, version string, s State)) {
	t.Helper()
	for version, text := range captured(t, name) {
		t.Run(version, func(t *testing.T) {
			var s State
			if err := parseInfo(text, &s); err != nil {
				t.Fatal(err)
			}
			engine := Redis
			if strings.HasPrefix(version, "valkey") {
				engine = Valkey
			}
			_, minor, _ := strings.Cut(version, "-")
			if s.Engine != engine || !strings.HasPrefix(s.Version, minor+".") || len(s.RunID) != 40 {
				t.Errorf("%s %s, run %q", s.Engine, s.Version, s.RunID)
			}
			check(t, version, s)
		})
	}
}

func TestParseInfoOfFreshNode(t *testing.T) {
	infoOf(t, "info-fresh.txt", func(t *testing.T, _ string, s State) {
		want := State{Engine: s.Engine, Version: s.Version, RunID: s.RunID, Uptime: s.Uptime, Replication: Replication{ID: s.Replication.ID}}
		if !reflect.DeepEqual(s, want) || len(s.Replication.ID) != 40 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestParseInfoOfPrimary(t *testing.T) {
	infoOf(t, "info-primary.txt", func(t *testing.T, _ string, s State) {
		if s.Keys != 1 || s.Replication.PrimaryHost != "" || s.Replication.LinkUp || s.Replication.LinkLost {
			t.Errorf("got %+v", s)
		}
		if len(s.Replication.Replicas) != 1 {
			t.Fatalf("replicas %+v, want one", s.Replication.Replicas)
		}
		r := s.Replication.Replicas[0]
		if !strings.HasPrefix(r.Host, "127.") || r.Port != 6379 || r.State != "online" {
			t.Errorf("replica %+v", r)
		}
	})
}

func TestParseInfoOfReplica(t *testing.T) {
	cases := []struct {
		file         string
		up, lost     bool
		holdsCopy    bool
		keysAreThere bool
	}{
		{"info-replica.txt", true, false, false, true},
		{"info-replica-lost.txt", false, true, true, true},
		// Its keys come from a dump that the last synchronisation left on disk.
		{"info-replica-never.txt", false, false, false, true},
	}
	for _, c := range cases {
		infoOf(t, c.file, func(t *testing.T, _ string, s State) {
			r := s.Replication
			if r.LinkUp != c.up || r.LinkLost != c.lost || r.Syncing || !strings.HasPrefix(r.PrimaryHost, "127.") || r.PrimaryPort != 6379 {
				t.Errorf("%s: %+v", c.file, r)
			}
			if (s.Keys == 1) != c.keysAreThere {
				t.Errorf("%s: %d keys", c.file, s.Keys)
			}
			s.Role = Replica // by CLUSTER NODES
			if s.HoldsCopy() != c.holdsCopy {
				t.Errorf("%s: holds a copy: %v", c.file, s.HoldsCopy())
			}
		})
	}
}

func TestParseInfoWhileLoading(t *testing.T) {
	infoOf(t, "info-loading.txt", func(t *testing.T, _ string, s State) {
		if !s.Loading || s.Uptime > time.Minute {
			t.Errorf("got %+v", s)
		}
	})
}

func TestHoldsCopy(t *testing.T) {
	holder := State{Role: Replica, Replication: Replication{LinkLost: true, Offset: 4711}}
	cases := []struct {
		name   string
		change func(*State)
		want   bool
	}{
		{"lost its primary", func(*State) {}, true},
		{"in step, nothing received since", func(s *State) { s.Replication.Offset = 0 }, true},
		{"no position", func(s *State) { s.Replication.Offset = 1 }, false},
		{"link up", func(s *State) { s.Replication.LinkUp, s.Replication.LinkLost = true, false }, false},
		{"never in step since its start", func(s *State) { s.Replication.LinkLost = false }, false},
		{"synchronising", func(s *State) { s.Replication.Syncing = true }, false},
		{"loading", func(s *State) { s.Loading = true }, false},
		{"primary", func(s *State) { s.Role = Primary }, false},
		{"role unknown", func(s *State) { s.Role = RoleUnknown }, false},
	}
	for _, c := range cases {
		s := holder
		c.change(&s)
		if got := s.HoldsCopy(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestParseInfoForms(t *testing.T) {
	const text = "# Server\r\nredis_version:8.4.0\r\nrun_id:r\r\nuptime_in_seconds:90\r\n" +
		"# Replication\r\nrole:slave\r\nmaster_host:2001:db8::2\r\nmaster_port:6380\r\nmaster_link_status:down\r\n" +
		"master_sync_in_progress:1\r\nslave_repl_offset:1\r\nmaster_link_down_since_seconds:42\r\nconnected_slaves:2\r\n" +
		"slave0:ip=2001:db8::3,port=6379,state=wait_bgsave,offset=0,lag=0,type=rdb-channel\r\n" +
		"slave1:lag=3,offset=9,state=online,port=1,ip=h\r\nmaster_replid:x\r\nmaster_repl_offset:7\r\n" +
		"# Persistence\r\nloading:0\r\naof_enabled:1\r\naof_rewrite_scheduled:1\r\nrdb_bgsave_in_progress:1\r\n" +
		"# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\ndb11:keys=4,expires=0\r\ndbsomething:1\r\n"
	want := State{
		Engine: Redis, Version: "8.4.0", RunID: "r", Uptime: 90 * time.Second,
		Replication: Replication{
			ID: "x", Offset: 1, PrimaryHost: "2001:db8::2", PrimaryPort: 6380,
			LinkLost: true, LinkLostFor: 42 * time.Second, Syncing: true,
			Replicas: []ReplicaLink{
				{Host: "2001:db8::3", Port: 6379, State: "wait_bgsave"},
				{Host: "h", Port: 1, State: "online", Offset: 9, Lag: 3 * time.Second},
			},
		},
		Keys: 7, AOFEnabled: true, AOFRewriting: true, RDBSaving: true,
	}
	var s State
	if err := parseInfo(text, &s); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
}

func TestParseInfoRefuses(t *testing.T) {
	const version = "redis_version:7.0.15\r\n"
	for text, want := range map[string]string{
		"":                                 "no redis_version",
		version + "uptime_in_seconds:soon": "uptime_in_seconds",
		version + "master_repl_offset:x":   "master_repl_offset",
		version + "master_port:":           "master_port",
		version + "slave0:ip=h,port=x":     "slave0: field port",
		version + "db0:keys=x":             "db0: field keys",
		version + "slave0:ip=h,offset=1e3": "slave0: field offset",
		version + "role:slave\r\nmaster_link_down_since_seconds:x": "master_link_down_since_seconds",
	} {
		var s State
		if err := parseInfo(text, &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseInfo(%q): %v, want an error with %q", text, err, want)
		}
	}
}

func TestParseClusterInfo(t *testing.T) {
	for version, text := range captured(t, "cluster-info-primary.txt") {
		var s State
		if err := parseClusterInfo(text, &s); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if !s.ClusterOK || s.SlotsAssigned != SlotCount || s.CurrentEpoch != 5 {
			t.Errorf("%s: ok %v, %d slots, epoch %d", version, s.ClusterOK, s.SlotsAssigned, s.CurrentEpoch)
		}
	}
	for version, text := range captured(t, "cluster-info-fresh.txt") {
		var s State
		if err := parseClusterInfo(text, &s); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if s.ClusterOK || s.SlotsAssigned != 0 || s.CurrentEpoch != 1 {
			t.Errorf("%s: ok %v, %d slots, epoch %d", version, s.ClusterOK, s.SlotsAssigned, s.CurrentEpoch)
		}
	}
	for _, text := range []string{"", "cluster_state:ok", "cluster_state:ok\r\ncluster_current_epoch:1\r\ncluster_slots_assigned:x"} {
		var s State
		if err := parseClusterInfo(text, &s); err == nil {
			t.Errorf("parseClusterInfo(%q) = %+v, want an error", text, s)
		}
	}
}

func FuzzParseInfo(f *testing.F) {
	for _, name := range []string{"info-fresh.txt", "info-primary.txt", "info-replica.txt", "info-replica-lost.txt", "info-replica-never.txt", "info-loading.txt"} {
		for _, text := range captured(f, name) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		var first, second State
		errFirst := parseInfo(text, &first)
		errSecond := parseInfo(text, &second)
		if (errFirst == nil) != (errSecond == nil) || !reflect.DeepEqual(first, second) {
			t.Fatalf("%q was read in two ways:\n%+v, %v\n%+v, %v", text, first, errFirst, second, errSecond)
		}
		if errFirst == nil && first.Version == "" {
			t.Fatalf("%q was accepted without a version", text)
		}
	})
}
