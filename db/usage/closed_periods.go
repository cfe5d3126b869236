package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// FeedsOfCustomer is the SQL of the feeds (billing.Feed) of a customer c: a JSON array of StoredFeed, in order of time.
// It is null if the customer has only one billing schedule, and therefore no feeds.
const FeedsOfCustomer = `case when c.streams > 1 then (
	    select jsonb_agg(jsonb_build_object('meter', f.meter_id, 'stream', f.stream, 'from', f.effective_from) order by f.effective_from, f.id)
	    from billing_stream_meters f
	    where f.tenant_id = c.tenant_id
	      and f.customer_id = c.id) end`

// StoredFeed is the JSON of an item of FeedsOfCustomer.
type StoredFeed struct {
	Meter  metering.MeterID `json:"meter"`
	Stream int              `json:"stream"`
	From   time.Time        `json:"from"`
}

// FeedsOf returns the stored feeds as billing.Feeds.
func FeedsOf(stored []StoredFeed) (feeds []billing.Feed) {
	for _, f := range stored {
		feeds = append(feeds, billing.Feed{MeterID: f.Meter, Stream: f.Stream, From: f.From})
	}
	return feeds
}

// ReadFeeds returns a customer's number of billing schedules, and its feeds in order of time.
func ReadFeeds(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID) (streams int, feeds []billing.Feed, err error) {
	var stored []StoredFeed
	err = q.QueryRow(ctx, `
		select c.streams, `+FeedsOfCustomer+`
		from customers c
		where c.tenant_id = $1
		  and c.id = $2`, tenant, customer).Scan(&streams, &stored)
	return streams, FeedsOf(stored), err
}

// closedStreams holds the span of the closed periods of each billing schedule of a customer. A stream is a
// billing schedule.
type closedStreams struct {
	first metering.Range // the span of the closed periods of stream 0
	// the spans of the other streams; index 0 is stream 1
	others []metering.Range
	feeds  []billing.Feed
}

// closedOfCustomer is the SQL of the span of closed periods of each billing schedule of a customer c, except
// for stream 0.
const closedOfCustomer = `case when c.streams > 1 then (
	    select jsonb_agg(jsonb_build_object('stream', x.stream, 'start', x.starts_at, 'end', x.ends_at))
	    from (
	      select p.stream, min(p.starts_at) as starts_at, max(p.ends_at) as ends_at
	      from billing_periods p
	      where p.tenant_id = c.tenant_id
	        and p.customer_id = c.id
	        and p.stream > 0
	        and p.closed_at is not null
	      group by p.stream) x) end`

func scanClosedStreams(row pgx.Row, id *metering.CustomerID, more ...any) (c closedStreams, err error) {
	var feeds []StoredFeed
	var spans []struct {
		Stream int       `json:"stream"`
		Start  time.Time `json:"start"`
		End    time.Time `json:"end"`
	}
	if err := row.Scan(append([]any{id, &c.first.Start, &c.first.End, &feeds, &spans}, more...)...); err != nil {
		return c, err
	}
	c.feeds = FeedsOf(feeds)
	for _, s := range spans {
		for len(c.others) < s.Stream {
			c.others = append(c.others, metering.Range{})
		}
		c.others[s.Stream-1] = metering.Range{Start: s.Start, End: s.End}
	}
	return c, nil
}

// contains reports whether an instant lies in a closed period of the billing schedule that the meter feeds at
// that instant.
func (c closedStreams) contains(meter metering.MeterID, at time.Time) bool {
	stream := 0
	for _, f := range c.feeds {
		if f.MeterID == meter && !f.From.After(at) {
			stream = f.Stream
		}
	}
	switch {
	case stream == 0:
		return c.first.Contains(at)
	case stream > len(c.others):
		return false
	}
	return c.others[stream-1].Contains(at)
}

// final reports whether a range lies entirely in closed periods. At each instant, the period is of the billing schedule
// to which the meter belongs at that instant.
func (c closedStreams) final(meter metering.MeterID, r metering.Range) bool {
	if len(c.feeds) == 0 {
		return !r.Start.Before(c.first.Start) && !r.End.After(c.first.End)
	}
	for _, at := range append(c.changes(r), r.Start, r.End.Add(-time.Microsecond)) {
		if !c.contains(meter, at) {
			return false
		}
	}
	return true
}

// changes returns the instants within a range at which any meter begins to feed another billing schedule, and
// the instants one microsecond earlier.
func (c closedStreams) changes(r metering.Range) (all []time.Time) {
	for _, f := range c.feeds {
		for _, at := range []time.Time{f.From, f.From.Add(-time.Microsecond)} {
			if r.Contains(at) {
				all = append(all, at)
			}
		}
	}
	return all
}

// StreamAt returns the SQL of the number of the billing schedule to which a customer's meter belongs at an instant.
func StreamAt(tenant, customer, meter, at string) string {
	return `coalesce((
	    select f.stream
	    from billing_stream_meters f
	    where f.tenant_id = ` + tenant + `
	      and f.customer_id = ` + customer + `
	      and f.meter_id = ` + meter + `
	      and f.effective_from <= ` + at + `
	    order by f.effective_from desc, f.id desc
	    limit 1), 0)`
}
