package metering

import (
	"regexp"
	"time"

	"github.com/robfig/cron/v3"
)

// AutoSync says when a tenant's customers are synced without being asked.
type AutoSync struct {
	TenantID  TenantID
	Enabled   bool
	Schedule  Schedule
	Paused    bool
	UpdatedAt time.Time
	AppliedAt *time.Time // when the schedule followed; nil: it has not yet
}

// Schedule is "hourly", "daily" (at midnight) or a cron expression of five
// fields, in the tenant's zone.
type Schedule string

const (
	Hourly Schedule = "hourly"
	Daily  Schedule = "daily"
)

// Cron is the schedule as a cron expression.
func (i Schedule) Cron() string {
	switch i {
	case Hourly:
		return "0 * * * *"
	case Daily:
		return "0 0 * * *"
	}
	return string(i)
}

// Jitter is how much later than its time a run may begin, so that tenants do
// not all begin at once.
func (i Schedule) Jitter() time.Duration {
	switch i {
	case Hourly:
		return 6 * time.Minute
	case Daily:
		return time.Hour
	}
	return time.Minute
}

// Both the parser and Temporal take more than what is here, and not the same:
// names, time zones, @every, empty parts of lists.
const cronPart = `(\*|\d+(-\d+)?)(/\d{1,2})?`

var (
	cronSyntax = regexp.MustCompile(`^(\s*` + cronPart + `(,` + cronPart + `)*(\s+|$))+$`)
	cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
)

// Validate checks what a client may choose.
func (i Schedule) Validate(location string) error {
	wrong := Invalid(location, "must be hourly, daily, or a cron expression of five fields of numbers, such as */15 8-18 * * 1-5")
	if len(i) > maxTextBytes || !cronSyntax.MatchString(i.Cron()) {
		return wrong
	}
	if _, err := cronParser.Parse(i.Cron()); err != nil {
		return wrong
	}
	return nil
}
