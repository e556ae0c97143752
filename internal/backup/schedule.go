package backup

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is when backups are taken.
type Schedule struct{ cron cron.Schedule }

// ParseSchedule reads the five fields of cron, or one of @hourly, @daily, @weekly,
// @monthly and @yearly, in a time zone of the IANA database; an empty zone is UTC.
// The error says what is wrong with the expression; an unknown zone gives the error
// of time.LoadLocation.
func ParseSchedule(expression string, zone *time.Location) (Schedule, error) {
	parsed, err := cron.ParseStandard(expression)
	if err != nil {
		return Schedule{}, fmt.Errorf("%q is no schedule: %w", expression, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok { // @every, which the API refuses too
		return Schedule{}, fmt.Errorf("%q is no schedule of times of the day", expression)
	}
	spec.Location = zone
	s := Schedule{cron: spec}
	if s.cron.Next(time.Unix(0, 0)).IsZero() {
		return Schedule{}, fmt.Errorf("%q never comes, as the 30th of February", expression)
	}
	return s, nil
}

// Next is the first tick after a time; the zero time when there is none within
// five years.
func (s Schedule) Next(after time.Time) time.Time { return s.cron.Next(after) }

// Due is the latest tick after last and not after now; the zero time when there
// is none. However many were missed, only the latest one is made up for.
func (s Schedule) Due(last, now time.Time) time.Time {
	tick := s.cron.Next(last)
	if tick.IsZero() || tick.After(now) {
		return time.Time{}
	}
	// Look back from now over longer and longer spans, until one has a tick in it:
	// after a year of downtime a schedule of minutes has half a million.
	for span := time.Minute; ; span *= 2 {
		from := now.Add(-span)
		if from.Before(last) {
			from = last
		}
		if next := s.cron.Next(from); next.After(now) {
			continue
		}
		return s.latest(from, now)
	}
}

// latest is the last tick after from and not after now. There is one.
func (s Schedule) latest(from, now time.Time) time.Time {
	tick := s.cron.Next(from)
	for next := s.cron.Next(tick); !next.IsZero() && !next.After(now); next = s.cron.Next(next) {
		tick = next
	}
	return tick
}
