package redis

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// captured returns a file of every version's folder in testdata, by version.
func captured(t testing.TB, name string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*-*", name))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata/*/%s: %v", name, err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(filepath.Dir(path))] = string(text)
	}
	return texts
}

// peerWith finds the only peer that a test describes.
func peerWith(t *testing.T, peers []Peer, what string, is func(Peer) bool) Peer {
	t.Helper()
	var found []Peer
	for _, p := range peers {
		if is(p) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d peers with %s, want 1: %+v", len(found), what, peers)
	}
	return found[0]
}

func TestParseNodesOfPrimary(t *testing.T) {
	for version, text := range captured(t, "nodes-primary.txt") {
		t.Run(version, func(t *testing.T) {
			table, err := parseNodes(text)
			if err != nil {
				t.Fatal(err)
			}
			self := table.self
			want := Peer{
				ID: self.ID, Host: self.Host, Port: 6379, BusPort: 16379, Role: Primary,
				ConfigEpoch: 1, Connected: true, Slots: []SlotRange{{0, 5460}, {7000, 7000}},
			}
			if !reflect.DeepEqual(self, want) || len(self.ID) != 40 || !strings.HasPrefix(self.Host, "127.") {
				t.Errorf("own line is %+v, want %+v", self, want)
			}
			if len(table.peers) != 5 {
				t.Fatalf("%d peers, want 5", len(table.peers))
			}
			second := peerWith(t, table.peers, "a hostname", func(p Peer) bool { return p.Hostname != "" })
			if !reflect.DeepEqual(second, Peer{
				ID: second.ID, Host: second.Host, Port: 6379, BusPort: 16379, Hostname: "orders-1.orders.default.svc",
				Role: Primary, NoFailover: true, ConfigEpoch: 2, Connected: true, Slots: []SlotRange{{5461, 6999}, {7001, 10922}},
			}) {
				t.Errorf("second primary is %+v", second)
			}
			if !maps.Equal(table.migrating, map[int]string{93: second.ID}) || !maps.Equal(table.importing, map[int]string{6000: second.ID}) {
				t.Errorf("migrating %v, importing %v", table.migrating, table.importing)
			}
			dead := peerWith(t, table.peers, "slots up to 16383", func(p Peer) bool { return slices.Contains(p.Slots, SlotRange{10923, 16383}) })
			if !dead.Fail || dead.PFail || dead.Connected || dead.Role != Primary || dead.ConfigEpoch != 3 {
				t.Errorf("killed primary is %+v", dead)
			}
			gone := peerWith(t, table.peers, "noaddr", func(p Peer) bool { return p.NoAddr })
			if gone.Host != "" || gone.Port != 0 || gone.BusPort != 0 || gone.Role != Primary || gone.Slots != nil {
				t.Errorf("peer without address is %+v", gone)
			}
			met := peerWith(t, table.peers, "handshake", func(p Peer) bool { return p.Handshake })
			if met.Host != "127.0.0.1" || met.Port != 1 || met.BusPort != 10001 || met.Role != RoleUnknown || met.Connected {
				t.Errorf("peer in handshake is %+v", met)
			}
			replica := peerWith(t, table.peers, "the replica's role", func(p Peer) bool { return p.Role == Replica })
			if replica.PrimaryID != self.ID || replica.ConfigEpoch != 1 || !replica.Connected || replica.Slots != nil {
				t.Errorf("replica is %+v", replica)
			}
		})
	}
}

func TestParseNodesOfReplica(t *testing.T) {
	for version, text := range captured(t, "nodes-replica.txt") {
		t.Run(version, func(t *testing.T) {
			table, err := parseNodes(text)
			if err != nil {
				t.Fatal(err)
			}
			primary := peerWith(t, table.peers, "slot 7000", func(p Peer) bool { return slices.Contains(p.Slots, SlotRange{7000, 7000}) })
			self := table.self
			if self.Role != Replica || self.PrimaryID != primary.ID || self.ConfigEpoch != 1 || self.Slots != nil {
				t.Errorf("own line is %+v, want a replica of %s", self, primary.ID)
			}
			// Valkey copies open slots to the replicas, Redis does not.
			if open := len(table.migrating) + len(table.importing); open != 0 != strings.HasPrefix(version, "valkey") {
				t.Errorf("%d open slots on the replica", open)
			}
		})
	}
}

func TestParseNodesForms(t *testing.T) {
	const id, other = "07c37dfeb235213a872192d90877d0cd55635b91", "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1"
	cases := []struct {
		name, address, rest string
		want                Peer
	}{
		{"no address known of itself", ":6379@16379", "myself,master - 0 0 0 connected",
			Peer{Port: 6379, BusPort: 16379, Role: Primary, Connected: true}},
		{"IPv6", "2001:db8::1:6379@16379", "myself,master - 0 0 0 connected",
			Peer{Host: "2001:db8::1", Port: 6379, BusPort: 16379, Role: Primary, Connected: true}},
		{"hostname and more fields", "10.0.0.1:6379@16379,orders-0,shard-id=69bc080733d1355567173199cff4a6a039a2f024,tls-port=6380", "myself,master - 0 0 0 connected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379, Hostname: "orders-0", Role: Primary, Connected: true}},
		{"more fields, no hostname", "10.0.0.1:6379@16379,,shard-id=69bc08", "myself,master - 0 0 0 connected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379, Role: Primary, Connected: true}},
		{"a field where the hostname would be", "10.0.0.1:6379@16379,shard-id=69bc08", "myself,master - 0 0 0 connected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379, Role: Primary, Connected: true}},
		{"flags nobody knows yet", "10.0.0.1:6379@16379", "myself,slave,sleepy,nofailover " + other + " 0 0 7 connected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379, Role: Replica, PrimaryID: other, NoFailover: true, ConfigEpoch: 7, Connected: true}},
		{"suspected", "10.0.0.1:6379@16379", "myself,master,fail? - 0 0 18446744073709551615 disconnected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379, Role: Primary, PFail: true, ConfigEpoch: 1<<64 - 1}},
		{"no flags", "10.0.0.1:6379@16379", "myself,noflags - 0 0 0 disconnected",
			Peer{Host: "10.0.0.1", Port: 6379, BusPort: 16379}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.want.ID = id
			table, err := parseNodes(id + " " + c.address + " " + c.rest + "\n")
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(table.self, c.want) {
				t.Errorf("got %+v, want %+v", table.self, c.want)
			}
		})
	}
}

func TestParseNodesRefuses(t *testing.T) {
	const good = "a 10.0.0.1:6379@16379 myself,master - 0 0 0 connected"
	cases := []struct{ name, text, want string }{
		{"nothing", "", "no line is flagged myself"},
		{"nobody is itself", strings.Replace(good, "myself,", "", 1), "no line is flagged myself"},
		{"two are itself", good + "\n" + good, "two lines are flagged myself"},
		{"a short line", "a 10.0.0.1:6379@16379 myself,master - 0 0 0", "7 words"},
		{"no bus port", strings.Replace(good, "@16379", "", 1), "is not host:port@busport"},
		{"no port", strings.Replace(good, ":6379", "", 1), "is not host:port@busport"},
		{"a port that is none", strings.Replace(good, ":6379", ":65536", 1), `port "65536"`},
		{"an epoch that is none", strings.Replace(good, "0 connected", "-1 connected", 1), `config epoch "-1"`},
		{"a slot too high", good + " 16384", "slot 16384 is above 16383"},
		{"a range that runs backwards", good + " 9-8", "runs backwards"},
		{"an open slot that leads nowhere", good + " [93->-]", "neither migrating nor importing"},
		{"an open slot that does not end", good + " [93->-b", "neither migrating nor importing"},
		{"an open slot that is none", good + " [x-<-b]", `slot "x"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			table, err := parseNodes(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v, want an error with %q", table, err, c.want)
			}
		})
	}
}

func TestSlotRange(t *testing.T) {
	for text, want := range map[string]SlotRange{"0": {0, 0}, "0-5460": {0, 5460}, "16383": {16383, 16383}} {
		r, err := ParseSlotRange(text)
		if err != nil || r != want || r.String() != text {
			t.Errorf("ParseSlotRange(%q) = %v, %v, want %v", text, r, err, want)
		}
	}
	if n := (SlotRange{10, 19}).Count(); n != 10 {
		t.Errorf("10-19 counts %d slots, want 10", n)
	}
	for _, text := range []string{"", "-", "1-", "-1", "16384", "2-1", "1-2-3", "a", "+1"} {
		if r, err := ParseSlotRange(text); err == nil {
			t.Errorf("ParseSlotRange(%q) = %v, want an error", text, r)
		}
	}
}

// format writes a table in the form of CLUSTER NODES.
func (t table) format() string {
	var b strings.Builder
	for _, p := range append([]Peer{t.self}, t.peers...) {
		fmt.Fprintf(&b, "%s %s:%d@%d,%s %s ", p.ID, p.Host, p.Port, p.BusPort, p.Hostname, strings.Join(p.flags(), ","))
		primary, link := "-", "disconnected"
		if p.PrimaryID != "" {
			primary = p.PrimaryID
		}
		if p.Connected {
			link = "connected"
		}
		fmt.Fprintf(&b, "%s 0 0 %d %s", primary, p.ConfigEpoch, link)
		for _, r := range p.Slots {
			fmt.Fprintf(&b, " %s", r)
		}
		b.WriteString("\n")
	}
	lines := strings.SplitN(b.String(), "\n", 2)
	words := strings.SplitN(lines[0], " ", 4)
	words[2] = "myself," + words[2]
	lines[0] = strings.Join(words, " ")
	for slot, id := range t.migrating {
		lines[0] += fmt.Sprintf(" [%d->-%s]", slot, id)
	}
	for slot, id := range t.importing {
		lines[0] += fmt.Sprintf(" [%d-<-%s]", slot, id)
	}
	return strings.Join(lines, "\n")
}

func (p Peer) flags() []string {
	flags := map[Role][]string{Primary: {"master"}, Replica: {"slave"}}[p.Role]
	for flag, set := range map[string]bool{
		"fail?": p.PFail, "fail": p.Fail, "handshake": p.Handshake, "noaddr": p.NoAddr, "nofailover": p.NoFailover,
	} {
		if set {
			flags = append(flags, flag)
		}
	}
	return append(flags, "unknown-flag")
}

func FuzzParseNodes(f *testing.F) {
	for _, name := range []string{"nodes-fresh.txt", "nodes-primary.txt", "nodes-replica.txt"} {
		for _, text := range captured(f, name) {
			f.Add(text)
		}
	}
	f.Add("a 2001:db8::1:6379@16379,,shard-id=b myself,master,fail? - 0 0 1 connected 0-16383 [1->-b] [2-<-c]\nb :0@0 noaddr - 0 0 0 disconnected")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := parseNodes(text)
		if err != nil {
			return
		}
		second, err := parseNodes(first.format())
		if err != nil {
			t.Fatalf("%q was read, and its own form is not: %v", text, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%q changed on the way:\n%+v\n%+v", text, first, second)
		}
	})
}

func FuzzParseSlotRange(f *testing.F) {
	for _, s := range []string{"0", "0-5460", "16383", "16384", "2-1", "007-8", "-", "1-2-3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseSlotRange(s)
		if err != nil {
			return
		}
		if r.First < 0 || r.Last < r.First || r.Last >= SlotCount {
			t.Fatalf("%q was read as %v", s, r)
		}
		if again, err := ParseSlotRange(r.String()); err != nil || again != r {
			t.Fatalf("%q: %v became %v, %v", s, r, again, err)
		}
	})
}
