package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// fields are the name:value lines of INFO and of CLUSTER INFO.
type fields map[string]string

func parseFields(text string) fields {
	f := fields{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
			f[name] = value
		}
	}
	return f
}

// number reads an integer field. A field that is absent is zero: versions and
// roles differ in what they report.
func (f fields) number(name string) (int64, error) {
	value, ok := f[name]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("field %s is %q, want a number", name, value)
	}
	return n, nil
}

func (f fields) flag(name string) bool { return f[name] == "1" }

// seconds reads a field that counts whole seconds.
func (f fields) seconds(name string) (time.Duration, error) {
	n, err := f.number(name)
	return time.Duration(n) * time.Second, err
}

// parseInfo fills in what INFO's sections server, replication, persistence and
// keyspace tell.
func parseInfo(text string, s *State) error {
	f := parseFields(text)
	s.Engine, s.Version = Redis, f["redis_version"]
	if v, ok := f["valkey_version"]; ok {
		s.Engine, s.Version = Valkey, v
	}
	if s.Version == "" {
		return fmt.Errorf("INFO has no redis_version")
	}
	s.RunID = f["run_id"]
	s.Loading = f.flag("loading")
	s.AOFEnabled = f.flag("aof_enabled")
	s.AOFRewriting = f.flag("aof_rewrite_in_progress") || f.flag("aof_rewrite_scheduled")
	s.RDBSaving = f.flag("rdb_bgsave_in_progress")
	var err error
	if s.Uptime, err = f.seconds("uptime_in_seconds"); err != nil {
		return fmt.Errorf("INFO: %w", err)
	}
	if s.Replication, err = parseReplication(f); err != nil {
		return fmt.Errorf("INFO: %w", err)
	}
	if s.Keys, err = parseKeyspace(f); err != nil {
		return fmt.Errorf("INFO: %w", err)
	}
	return nil
}

func parseReplication(f fields) (Replication, error) {
	r := Replication{ID: f["master_replid"]}
	offset := "master_repl_offset"
	if f["role"] == "slave" {
		offset = "slave_repl_offset"
		r.PrimaryHost = f["master_host"]
		r.LinkUp = f["master_link_status"] == "up"
		r.Syncing = f.flag("master_sync_in_progress")
	}
	var err error
	if r.Offset, err = f.number(offset); err != nil {
		return Replication{}, err
	}
	port, err := f.number("master_port")
	if err != nil {
		return Replication{}, err
	}
	r.PrimaryPort = int(port)
	// Present only while the link is down; -1 when it has never been up.
	if since, ok := f["master_link_down_since_seconds"]; ok && since != "-1" {
		if r.LinkLostFor, err = f.seconds("master_link_down_since_seconds"); err != nil {
			return Replication{}, err
		}
		r.LinkLost = true
	}
	// slave0, slave1, …; numbered without gaps in order of connection.
	for i := 0; ; i++ {
		line, ok := f["slave"+strconv.Itoa(i)]
		if !ok {
			return r, nil
		}
		link, err := parseReplicaLink(line)
		if err != nil {
			return Replication{}, fmt.Errorf("field slave%d: %w", i, err)
		}
		r.Replicas = append(r.Replicas, link)
	}
}

// parseReplicaLink reads ip=…,port=…,state=…,offset=…,lag=…, in any order and
// with any more of them.
func parseReplicaLink(line string) (ReplicaLink, error) {
	f := pairs(line)
	link := ReplicaLink{Host: f["ip"], State: f["state"]}
	port, err := f.number("port")
	if err != nil {
		return ReplicaLink{}, err
	}
	link.Port = int(port)
	if link.Offset, err = f.number("offset"); err != nil {
		return ReplicaLink{}, err
	}
	link.Lag, err = f.seconds("lag")
	return link, err
}

// parseKeyspace adds up the keys of db0:keys=…,expires=…,avg_ttl=…; a database
// without keys has no line.
func parseKeyspace(f fields) (int64, error) {
	var sum int64
	for name, line := range f {
		number, ok := strings.CutPrefix(name, "db")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			continue
		}
		keys, err := pairs(line).number("keys")
		if err != nil {
			return 0, fmt.Errorf("field %s: %w", name, err)
		}
		sum += keys
	}
	return sum, nil
}

// pairs reads name=value,name=value.
func pairs(s string) fields {
	f := fields{}
	for part := range strings.SplitSeq(s, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			f[name] = value
		}
	}
	return f
}
