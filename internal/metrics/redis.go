package metrics

import "time"

var (
	commandLabel = label{name: "command", values: []string{
		"connect", "INFO", "CLUSTER INFO", "CLUSTER NODES", "CLUSTER MYID", "CLUSTER MEET", "CLUSTER FORGET", "CLUSTER SET-CONFIG-EPOCH",
		"CLUSTER ADDSLOTSRANGE", "CLUSTER DELSLOTSRANGE", "CLUSTER BUMPEPOCH", "CLUSTER REPLICATE", "CLUSTER FAILOVER", "CLUSTER SETSLOT",
		"CLUSTER COUNTKEYSINSLOT", "CLUSTER GETKEYSINSLOT", "CLUSTER MIGRATESLOTS", "CLUSTER GETSLOTMIGRATIONS", "CLUSTER MIGRATION",
		"CONFIG GET", "CONFIG SET", "COMMAND", "FUNCTION", "MIGRATE", "ASKING", "UNLINK", "TIME", Other,
	}}

	commands = counter("redis_commands_total",
		"commands to Redis nodes; failed: an error for an answer, or none. connect is the dial with the login, and counts only when it failed", commandLabel, resultLabel)
	exchanges = histogram("redis_exchange_duration_seconds",
		"time from sending a batch of commands to a Redis node, the dial included, until its last answer, by the first command of the batch", quick, commandLabel)
)

// Exchange implements redis.Meter.
func (p *Pass) Exchange(first string) (end func()) {
	if p == nil {
		return func() {}
	}
	p.begin(asking)
	start := time.Now()
	return func() {
		p.end(asking)
		exchanges.WithLabelValues(commandLabel.of(first)).Observe(time.Since(start).Seconds())
	}
}

// Command implements redis.Meter.
func (p *Pass) Command(name string, err error) {
	if p != nil {
		commands.WithLabelValues(commandLabel.of(name), result(err)).Inc()
	}
}
