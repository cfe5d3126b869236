package db

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// storedSide is the stored state of one of a customer's subscriptions, except the one that stream 0
// follows.
type storedSide struct {
	Subscription string              `json:"subscription"`
	Start        time.Time           `json:"period_start"`
	End          time.Time           `json:"period_end"`
	Trial        bool                `json:"trial"`
	Ended        bool                `json:"ended"`
	Currency     string              `json:"currency"`
	Destinations []storedDestination `json:"destinations"`

	Charges []billing.Destination `json:"charges"` // null if they were never read
}

func storedSides(all []billing.Side) []storedSide {
	stored := make([]storedSide, len(all))
	for i, s := range all {
		stored[i] = storedSide{s.Subscription, s.Period.Start, s.Period.End, s.Trial, s.Ended, s.Currency, storedDestinations(s.Destinations), s.Charges}
	}
	return stored
}

// sides returns the stored states with the prices of their destinations.
func (p providerPrices) sides(stored []storedSide, customer string, terms keptTerms, read ReadPrice) (all []billing.Side, err error) {
	for _, s := range stored {
		side := billing.Side{
			Customer: customer, Subscription: s.Subscription, Period: metering.Range{Start: s.Start, End: s.End}, Trial: s.Trial, Ended: s.Ended, Currency: s.Currency,
			Charges: s.Charges,
		}
		if side.Destinations, err = p.destinations(s.Destinations, terms, read); err != nil {
			return nil, err
		}
		all = append(all, side)
	}
	return all, nil
}

// SQL of the data that only customers c with several billing schedules have. feedsOfCustomer is the meters
// that feed each schedule. followedOfCustomer is the subscriptions at connection k with a schedule.
const (
	feedsOfCustomer = `case when c.streams > 1 then (
	    select jsonb_agg(jsonb_build_object('meter', f.meter_id, 'stream', f.stream, 'from', f.effective_from) order by f.effective_from, f.id)
	    from billing_stream_meters f
	    where f.tenant_id = c.tenant_id
	      and f.customer_id = c.id) end`
	followedOfCustomer = `case when c.streams > 1 then (
	    select jsonb_agg(jsonb_build_object('subscription', s.subscription, 'stream', s.stream))
	    from billing_streams s
	    where s.tenant_id = c.tenant_id
	      and s.customer_id = c.id
	      and s.connection_id = k.id) end`
)

// storedFeed and storedFollowed are the items of feedsOfCustomer and followedOfCustomer.
type (
	storedFeed struct {
		Meter  metering.MeterID `json:"meter"`
		Stream int              `json:"stream"`
		From   time.Time        `json:"from"`
	}
	storedFollowed struct {
		Subscription string `json:"subscription"`
		Stream       int    `json:"stream"`
	}
)

func feedsOf(stored []storedFeed) (feeds []billing.Feed) {
	for _, f := range stored {
		feeds = append(feeds, billing.Feed{MeterID: f.Meter, Stream: f.Stream, From: f.From})
	}
	return feeds
}

// feedsOfOne returns a customer's number of billing schedules, and the meters that feed each.
func feedsOfOne(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID) (streams int, feeds []billing.Feed, err error) {
	var stored []storedFeed
	err = q.QueryRow(ctx, `
		select c.streams, `+feedsOfCustomer+`
		from customers c
		where c.tenant_id = $1
		  and c.id = $2`, tenant, customer).Scan(&streams, &stored)
	return streams, feedsOf(stored), err
}

// closedStreams is the closed periods of a customer's billing schedules.
type closedStreams struct {
	first metering.Range // the span of the closed periods of stream 0
	// by stream number, from stream 1 on
	others []metering.Range
	feeds  []billing.Feed
}

// closedOfCustomer is the SQL of the spans of the closed periods of customer c's schedules from stream 1
// on.
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
	var feeds []storedFeed
	var spans []struct {
		Stream int       `json:"stream"`
		Start  time.Time `json:"start"`
		End    time.Time `json:"end"`
	}
	if err := row.Scan(append([]any{id, &c.first.Start, &c.first.End, &feeds, &spans}, more...)...); err != nil {
		return c, err
	}
	c.feeds = feedsOf(feeds)
	for _, s := range spans {
		for len(c.others) < s.Stream {
			c.others = append(c.others, metering.Range{})
		}
		c.others[s.Stream-1] = metering.Range{Start: s.Start, End: s.End}
	}
	return c, nil
}

// contains reports whether an instant lies in a closed period of the schedule that the meter feeds then.
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

// final reports whether a range of a meter's usage lies in closed periods.
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

// changes returns the instants within a range at which a meter begins to feed another schedule, and the
// microseconds before them.
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

// streamAt is the SQL of the number of the billing schedule that a customer's meter feeds at an instant.
func streamAt(tenant, customer, meter, at string) string {
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

// eachStream returns a reader for each of the customer's billing schedules, by number. The first is r.
func (r *factReader) eachStream() []*factReader {
	all := []*factReader{r}
	for len(all) < r.streams {
		of := *r
		of.facts = r.base.OfStream(len(all))
		all = append(all, &of)
	}
	return all
}

// regroup stores the changes of the customer's billing schedules.
func (r *factReader) regroup(tx pgx.Tx, change billing.Regrouped) error {
	var batch pgx.Batch
	streams := r.streams
	for _, f := range change.Followed {
		streams = max(streams, f.Stream+1)
		batch.Queue(`insert into billing_streams (tenant_id, customer_id, connection_id, subscription, stream, recorded_at) values ($1, $2, $3, $4, $5, $6)`,
			r.tenant, r.customer, r.facts.Connection.ID, f.Subscription, f.Stream, r.facts.Now)
	}
	for _, f := range change.Feeds {
		batch.Queue(`insert into billing_stream_meters (tenant_id, customer_id, meter_id, stream, effective_from, recorded_at) values ($1, $2, $3, $4, $5, $6)`,
			r.tenant, r.customer, f.MeterID, f.Stream, f.From, r.facts.Now)
	}
	batch.Queue(`update customers set streams = $3 where tenant_id = $1 and id = $2`, r.tenant, r.customer, streams)
	batch.Queue(`
		update billing_periods
		set watermark_configuration = ''
		where tenant_id = $1
		  and customer_id = $2
		  and closed_at is null`, r.tenant, r.customer)
	if err := tx.SendBatch(r.ctx, &batch).Close(); err != nil {
		return err
	}
	return queueAlerts(r.ctx, tx, r.tenant, r.customer)
}

// writeAll stores the plans of a customer's billing schedules in their order.
func writeAll(streams []streamPlan, frame Frame) (all Planned, err error) {
	number := int64(0)
	for _, p := range streams {
		p.lastNumber = max(p.lastNumber, number)
		planned, err := p.write(p.ReportPlan, frame)
		if err != nil {
			return Planned{}, err
		}
		number = p.lastNumber
		all.add(planned)
	}
	return all, nil
}

// add adds the result of another schedule's plan. If both exclude a meter, the reason of the first remains.
func (p *Planned) add(o Planned) {
	p.ReadFirst, p.More = p.ReadFirst || o.ReadFirst, p.More || o.More
	p.Send, p.UpToDate = append(p.Send, o.Send...), append(p.UpToDate, o.UpToDate...)
	for _, e := range o.Excluded {
		if !slices.ContainsFunc(p.Excluded, func(known metering.ExcludedMeter) bool { return known.MeterID == e.MeterID }) {
			p.Excluded = append(p.Excluded, e)
		}
	}
}
