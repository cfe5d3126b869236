package metering

import (
	"regexp"
	"time"

	"github.com/robfig/cron/v3"
)

// AutoSync is a tenant's setting for scheduled syncs of all its customers.
type AutoSync struct {
	TenantID  TenantID
	Enabled   bool
	Schedule  Schedule
	Paused    bool
	UpdatedAt time.Time
	AppliedAt *time.Time // when this setting was applied to the schedule in Temporal; nil: not yet
}

// Schedule is "hourly", "daily" (at midnight), a cron expression of five fields in the tenant's zone, or
// an interval, such as "15m". Intervals are aligned to the Unix epoch.
type Schedule string

const (
	Hourly Schedule = "hourly"
	Daily  Schedule = "daily"
)

// The shortest and the longest time between two runs.
const (
	shortestEvery = 5 * time.Minute
	longestEvery  = 24 * time.Hour
)

// Every returns the time between two runs, or 0 if the schedule is not a duration.
func (i Schedule) Every() time.Duration {
	every, err := time.ParseDuration(string(i))
	if err != nil {
		return 0
	}
	return every
}

// Cron returns a schedule that is not a duration as a cron expression.
func (i Schedule) Cron() string {
	switch i {
	case Hourly:
		return "0 * * * *"
	case Daily:
		return "0 0 * * *"
	}
	return string(i)
}

// Jitter returns the maximum delay of a run. Delays spread the runs of tenants with the same schedule.
func (i Schedule) Jitter() time.Duration {
	switch i {
	case Hourly:
		return 6 * time.Minute
	case Daily:
		return time.Hour
	}
	if every := i.Every(); every > 0 {
		return min(every/10, time.Hour)
	}
	return time.Minute
}

// cronPart matches one list element of a cron field. The cron library and Temporal both accept this syntax,
// and each also accepts extensions that differ: names, time zones, @every, empty list elements.
const cronPart = `(\*|\d+(-\d+)?)(/\d{1,2})?`

var (
	cronSyntax = regexp.MustCompile(`^(\s*` + cronPart + `(,` + cronPart + `)*(\s+|$))+$`)
	cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
)

// Validate returns an error at location if the schedule is not valid.
func (i Schedule) Validate(location string) error {
	wrong := Invalid(location, "must be hourly, daily, a duration of whole minutes from 5m to 24h, such as 15m, "+
		"or a cron expression of five fields of numbers, such as */15 8-18 * * 1-5")
	if longerThan(maxText, string(i)) {
		return wrong
	}
	if every := i.Every(); every != 0 {
		if every < shortestEvery || every > longestEvery || every%time.Minute != 0 {
			return wrong
		}
		return nil
	}
	if !cronSyntax.MatchString(i.Cron()) {
		return wrong
	}
	times, err := cronParser.Parse(i.Cron())
	if err != nil {
		return wrong
	}
	if times.Next(time.Unix(0, 0).UTC()).IsZero() { // Next searches five years, enough to include a 29 February
		return Invalid(location, "must match a date that exists; none of the chosen months has the chosen day")
	}
	return nil
}
