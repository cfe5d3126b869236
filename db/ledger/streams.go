package ledger

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
)

// storedSide is the stored form of an item of billing.Side.Others: the state of a subscription of the customer
// that stream 0 does not follow.
type storedSide struct {
	Subscription string              `json:"subscription"`
	Start        time.Time           `json:"period_start"`
	End          time.Time           `json:"period_end"`
	Trial        bool                `json:"trial"`
	Ended        bool                `json:"ended"`
	Currency     string              `json:"currency"`
	Destinations []storedDestination `json:"destinations"`

	Charges []billing.Destination `json:"charges"` // null if the destinations of charges were never read
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

// followedOfCustomer is the SQL of the subscriptions of customer c that have billing schedules of their own. It is
// null if the customer has only one billing schedule.
const followedOfCustomer = `case when c.streams > 1 then (
	    select jsonb_agg(jsonb_build_object('connection', s.connection_id, 'subscription', s.subscription, 'stream', s.stream))
	    from billing_streams s
	    where s.tenant_id = c.tenant_id
	      and s.customer_id = c.id) end`

// storedFollowed is an item of followedOfCustomer.
type storedFollowed struct {
	Connection   metering.ConnectionID `json:"connection"`
	Subscription string                `json:"subscription"`
	Stream       int                   `json:"stream"`
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
			r.tenant, r.customer, f.Connection, f.Subscription, f.Stream, r.facts.Now)
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
	return catalog.QueueAlerts(r.ctx, tx, r.tenant, r.customer)
}

// writeAll stores the plans of a customer's billing schedules in order. The reports of all schedules share one
// sequence of numbers.
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
		if !slices.ContainsFunc(p.Excluded, func(known billing.Exclusion) bool { return known.MeterID == e.MeterID }) {
			p.Excluded = append(p.Excluded, e)
		}
	}
}
