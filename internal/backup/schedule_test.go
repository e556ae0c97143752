package backup

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestDue(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		schedule  string
		zone      *time.Location
		last, now string
		want      string // empty: none
	}{
		"not yet":                       {"0 3 * * *", time.UTC, "2026-05-01 03:00:00", "2026-05-02 02:59:59", ""},
		"on the tick":                   {"0 3 * * *", time.UTC, "2026-05-01 03:00:00", "2026-05-02 03:00:00", "2026-05-02 03:00:00"},
		"a little late":                 {"0 3 * * *", time.UTC, "2026-05-01 03:00:00", "2026-05-02 03:00:20", "2026-05-02 03:00:00"},
		"dealt with":                    {"0 3 * * *", time.UTC, "2026-05-02 03:00:00", "2026-05-02 03:00:20", ""},
		"three days down: one":          {"0 3 * * *", time.UTC, "2026-05-01 03:00:00", "2026-05-04 12:00:00", "2026-05-04 03:00:00"},
		"a year down, every minute":     {"* * * * *", time.UTC, "2025-05-01 03:00:00", "2026-05-04 12:00:30", "2026-05-04 12:00:00"},
		"the clock was set back":        {"0 3 * * *", time.UTC, "2026-05-04 03:00:00", "2026-05-01 12:00:00", ""},
		"in another zone":               {"0 3 * * *", berlin, "2026-05-01 01:00:00", "2026-05-02 01:30:00", "2026-05-02 01:00:00"},
		"an hour that does not exist":   {"30 2 * * *", berlin, "2026-03-28 01:30:00", "2026-03-29 12:00:00", ""},
		"@daily":                        {"@daily", time.UTC, "2026-05-01 03:00:00", "2026-05-02 00:00:01", "2026-05-02 00:00:00"},
		"the 29th of February, 4 years": {"0 0 29 2 *", time.UTC, "2026-05-01 03:00:00", "2028-03-01 00:00:01", "2028-02-29 00:00:00"},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSchedule(tt.schedule, tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			var want time.Time
			if tt.want != "" {
				want = at(t, tt.want)
			}
			if got := s.Due(at(t, tt.last), at(t, tt.now)); !got.Equal(want) {
				t.Errorf("%s, want %s", got.UTC(), want)
			}
		})
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for expression, says := range map[string]string{
		"61 3 * * *":   "61",
		"0 3 * *":      "expected exactly 5 fields",
		"@every 1h":    "no schedule of times of the day",
		"0 0 30 2 *":   "never comes",
		"@fortnightly": "fortnightly",
	} {
		if _, err := ParseSchedule(expression, time.UTC); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", expression, err, says)
		}
	}
}
