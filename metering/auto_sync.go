package metering

import (
	"strconv"
	"strings"
	"time"
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

// cronFields are the bounds of a cron expression's fields.
var cronFields = []struct{ least, most int }{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

// Validate checks what a client may choose.
func (i Schedule) Validate(location string) error {
	fields := strings.Fields(i.Cron())
	wrong := Invalid(location, "must be hourly, daily, or a cron expression of five fields of numbers, such as */15 8-18 * * 1-5")
	if len(fields) != len(cronFields) || len(i) > maxTextBytes {
		return wrong
	}
	for n, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			if !validCronPart(part, cronFields[n].least, cronFields[n].most) {
				return wrong
			}
		}
	}
	return nil
}

// validCronPart takes *, 5, 5-10, and each with a step such as */15.
func validCronPart(part string, least, most int) bool {
	span, step, stepped := strings.Cut(part, "/")
	if n, err := strconv.Atoi(step); stepped && (err != nil || n < 1 || n > most) {
		return false
	}
	if span == "*" {
		return true
	}
	from, until, ranged := strings.Cut(span, "-")
	a, err := strconv.Atoi(from)
	if err != nil || a < least || a > most {
		return false
	}
	if !ranged {
		return true
	}
	b, err := strconv.Atoi(until)
	return err == nil && b >= a && b <= most
}
