package redis

import (
	"fmt"
	"strconv"
	"strings"
)

// table is the answer to CLUSTER NODES.
type table struct {
	self                 Peer
	peers                []Peer
	migrating, importing map[int]string
}

// parseNodes reads CLUSTER NODES of Redis 7.0 to 8 and Valkey 8 to 9. Flags and
// auxiliary address fields that it does not know are passed over.
func parseNodes(text string) (table, error) {
	var t table
	found := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		p, myself, err := parseNode(words)
		if err != nil {
			return table{}, fmt.Errorf("CLUSTER NODES line %q: %w", strings.TrimSpace(line), err)
		}
		open := openSlots{}
		for _, word := range words[8:] {
			if err := parseSlotWord(word, &p, &open); err != nil {
				return table{}, fmt.Errorf("CLUSTER NODES line %q: %w", strings.TrimSpace(line), err)
			}
		}
		if !myself {
			t.peers = append(t.peers, p)
			continue
		}
		if found {
			return table{}, fmt.Errorf("CLUSTER NODES: two lines are flagged myself")
		}
		found = true
		t.self, t.migrating, t.importing = p, open.migrating, open.importing
	}
	if !found {
		return table{}, fmt.Errorf("CLUSTER NODES: no line is flagged myself")
	}
	return t, nil
}

// parseNode reads the eight fixed words of a line: id, address, flags, primary,
// ping-sent, pong-received, config epoch, link state.
func parseNode(words []string) (p Peer, myself bool, err error) {
	if len(words) < 8 {
		return Peer{}, false, fmt.Errorf("%d words, want 8 or more", len(words))
	}
	p.ID = words[0]
	if err := parseAddress(words[1], &p); err != nil {
		return Peer{}, false, err
	}
	for flag := range strings.SplitSeq(words[2], ",") {
		switch flag {
		case "myself":
			myself = true
		case "master":
			p.Role = Primary
		case "slave":
			p.Role = Replica
		case "fail?":
			p.PFail = true
		case "fail":
			p.Fail = true
		case "handshake":
			p.Handshake = true
		case "noaddr":
			p.NoAddr = true
		case "nofailover":
			p.NoFailover = true
		}
	}
	if words[3] != "-" {
		p.PrimaryID = words[3]
	}
	if p.ConfigEpoch, err = strconv.ParseUint(words[6], 10, 64); err != nil {
		return Peer{}, false, fmt.Errorf("config epoch %q is no number", words[6])
	}
	p.Connected = words[7] == "connected"
	return p, myself, nil
}

// parseAddress reads host:port@busport[,hostname[,name=value]...]. The host is
// an IP address, an IPv6 one without brackets, or empty.
func parseAddress(s string, p *Peer) error {
	addr, rest, _ := strings.Cut(s, ",")
	hostPort, bus, hasBus := strings.Cut(addr, "@")
	colon := strings.LastIndexByte(hostPort, ':')
	if !hasBus || colon < 0 {
		return fmt.Errorf("address %q is not host:port@busport", addr)
	}
	p.Host = hostPort[:colon]
	var err error
	if p.Port, err = parsePort(hostPort[colon+1:]); err != nil {
		return err
	}
	if p.BusPort, err = parsePort(bus); err != nil {
		return err
	}
	// The second field is the hostname, present and empty when only others follow.
	hostname, _, _ := strings.Cut(rest, ",")
	if !strings.Contains(hostname, "=") {
		p.Hostname = hostname
	}
	return nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q is no port", s)
	}
	return int(n), nil
}

type openSlots struct{ migrating, importing map[int]string }

// parseSlotWord reads one word after the fixed eight: a slot, a range, or an open
// slot in brackets: [93->-id] is migrating to id, [77-<-id] importing from it.
func parseSlotWord(word string, p *Peer, open *openSlots) error {
	inner, isOpen := strings.CutPrefix(word, "[")
	if !isOpen {
		r, err := ParseSlotRange(word)
		if err != nil {
			return err
		}
		p.Slots = append(p.Slots, r)
		return nil
	}
	inner, closed := strings.CutSuffix(inner, "]")
	into := &open.migrating
	number, id, ok := strings.Cut(inner, "->-")
	if !ok {
		into = &open.importing
		number, id, ok = strings.Cut(inner, "-<-")
	}
	if !closed || !ok || id == "" {
		return fmt.Errorf("open slot %q is neither migrating nor importing", word)
	}
	slot, err := parseSlot(number)
	if err != nil {
		return err
	}
	if *into == nil {
		*into = map[int]string{}
	}
	(*into)[slot] = id
	return nil
}
