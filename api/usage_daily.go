package api

import (
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

type dailyInput struct {
	Days int `query:"days" minimum:"1" maximum:"92" default:"30" doc:"Number of days up to today, in the tenant's time zone"`
}

type dailyOutput struct{ Body dailyUsage }

type dailyUsage struct {
	Period usagePeriod  `json:"period"`
	Meters []meterDaily `json:"meters" doc:"All meters, by id"`
}

type meterDaily struct {
	MeterID   string           `json:"meter_id"`
	MeterSlug string           `json:"meter_slug"`
	Total     metering.Decimal `json:"total" doc:"Usage of all days in the list"`
	Days      []dayUsage       `json:"days" doc:"Days in order of time. Days without usage are omitted"`

	Backfilling bool `json:"backfilling,omitempty" doc:"Whether the meter's earlier events are still being counted. If true, the response has no days and no total"`
}

type dayUsage struct {
	Start time.Time        `json:"start"`
	End   time.Time        `json:"end"`
	Usage metering.Decimal `json:"usage" doc:"Usage of the day, including late usage"`
}

func (s *server) registerDailyUsage() {
	huma.Register(s.api, heavy(get("get-daily-usage", "/v1/usage/daily", UsageRead, "Get the daily usage of every meter for all customers",
		"Returns the last days up to today, in the tenant's time zone. Days without usage are omitted.")), s.usageDaily)
}

// usageDaily returns the daily usage of all customers together.
func (s *server) usageDaily(ctx context.Context, in *dailyInput) (*dailyOutput, error) {
	days := lastDays(s.Now(), in.Days, principalOf(ctx).Tenant.Location())
	meters, err := s.Store.Usage.Daily(ctx, principalOf(ctx).Tenant.ID, days)
	if err != nil {
		return nil, err
	}
	out := new(dailyOutput)
	out.Body.Period = usagePeriod{days[0].Start.UTC(), days[len(days)-1].End.UTC()}
	out.Body.Meters = []meterDaily{}
	for _, m := range meters {
		out.Body.Meters = append(out.Body.Meters, showDaily(m))
	}
	return out, nil
}

func showDaily(m usage.MeterDays) meterDaily {
	shown := meterDaily{MeterID: m.Meter.ID.String(), MeterSlug: m.Meter.Slug, Days: []dayUsage{}, Backfilling: m.Backfilling}
	for _, day := range m.Days {
		shown.Days = append(shown.Days, dayUsage{day.Start.UTC(), day.End.UTC(), day.Usage})
		shown.Total = shown.Total.Add(day.Usage)
	}
	return shown
}

// lastDays returns the last count days in a time zone, oldest first. The last day contains now.
func lastDays(now time.Time, count int, timezone *time.Location) []metering.Range {
	days := []metering.Range{metering.WindowOf(now, metering.Day, timezone)}
	for len(days) < count {
		days = append(days, metering.WindowOf(days[len(days)-1].Start.Add(-time.Microsecond), metering.Day, timezone))
	}
	slices.Reverse(days)
	return days
}
