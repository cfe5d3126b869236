package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Feed assigns a meter to one of the customer's billing schedules from an instant on, until the meter's next Feed.
type Feed struct {
	MeterID metering.MeterID
	Stream  int
	From    time.Time
}

// Followed is a subscription that has a billing schedule of its own.
type Followed struct {
	Connection   metering.ConnectionID
	Subscription string
	Stream       int
}

// fed returns the part of a range in which the meter belongs to the billing schedule.
func (f *Facts) fed(meter metering.MeterID, within metering.Range) (part metering.Range) {
	stream, from := 0, within.Start
	add := func(until time.Time) {
		if now := within.Intersect(metering.Range{Start: from, End: until}); stream == f.Stream && !now.Empty() {
			if part.Empty() {
				part.Start = now.Start
			}
			part.End = now.End
		}
	}
	for _, feed := range f.Feeds {
		if feed.MeterID == meter {
			add(feed.From)
			stream, from = feed.Stream, feed.From
		}
	}
	add(within.End)
	return part
}

// feeds reports whether the meter belongs to the billing schedule at Now.
func (f *Facts) feeds(meter metering.MeterID) bool {
	return !f.fed(meter, metering.Range{Start: f.Now, End: f.Now.Add(time.Microsecond)}).Empty()
}

// FedIn returns the parts of the ranges in which the meter belongs to the billing schedule.
func (f Facts) FedIn(meter metering.MeterID, ranges []metering.Range) (parts []metering.Range) {
	for _, r := range ranges {
		if part := f.fed(meter, r); !part.Empty() {
			parts = append(parts, part)
		}
	}
	return parts
}

// metersIn returns the meters that belong to the billing schedule at any time in the period.
func (f *Facts) metersIn(p Period) []metering.Meter {
	if len(f.Feeds) == 0 {
		return f.Meters
	}
	return slices.DeleteFunc(slices.Clone(f.Meters), func(m metering.Meter) bool { return f.fed(m.ID, p.Range).Empty() })
}

// Shows reports whether statements include the period: all periods of schedule 0, and other periods in which a meter
// belongs to the schedule.
func (f Facts) Shows(p Period) bool { return f.Stream == 0 || len(f.metersIn(p)) > 0 }

// OfStream returns the customer's facts as the facts of another of its billing schedules. The periods of that schedule
// begin when the first meter is assigned to it. Side is then the state of the subscription that has the schedule.
func (f Facts) OfStream(stream int) Facts {
	never := f.Now.AddDate(1000, 0, 0)
	f.Stream, f.Customer.EarlyEvents, f.Customer.HeadOpenUntil, f.Customer.BillingStartsAt = stream, nil, nil, &never
	for _, feed := range f.Feeds {
		feeds := !f.fed(feed.MeterID, metering.Range{Start: feed.From, End: never}).Empty()
		if feeds && feed.Stream == stream && feed.From.Before(*f.Customer.BillingStartsAt) {
			f.Customer.BillingStartsAt = &feed.From
		}
	}
	if f.Side == nil {
		return f
	}
	// If no item of Others belongs to the schedule, the schedule has no subscription.
	side := Side{Customer: f.Side.Customer, Destinations: f.Side.Destinations, Charges: f.Side.Charges}
	for _, other := range f.Side.Others {
		if slices.Contains(f.Followed, Followed{f.Connection.ID, other.Subscription, stream}) {
			side = other
		}
	}
	f.Side = &side
	return f
}

// Regrouped holds the changes of a customer's billing schedules.
type Regrouped struct {
	Followed []Followed
	Feeds    []Feed
}

// Empty reports whether there are no changes.
func (r Regrouped) Empty() bool { return len(r.Followed)+len(r.Feeds) == 0 }

// Regroup decides which subscriptions get a billing schedule of their own, and which meters move to another schedule. A
// meter moves if its schedule cannot report it and another one can. streams holds the facts of all schedules of a
// customer, ordered by number.
func Regroup(streams []Facts) (r Regrouped) {
	main := streams[0]
	if main.Connection == nil || main.Side == nil && !main.Connection.Statements {
		return r
	}
	g := regrouping{main: main, streams: slices.Clone(streams)}
	for _, other := range otherSubscriptions(main.Side) {
		if main.follower(main.Connection.ID, other.Subscription) == 0 && slices.ContainsFunc(other.Destinations, Destination.takes) {
			r.Followed = append(r.Followed, Followed{main.Connection.ID, other.Subscription, g.streamFor(other)})
		}
	}
	for _, m := range main.Meters {
		if feed, moves := g.move(m.ID); moves {
			r.Feeds = append(r.Feeds, feed)
		}
	}
	return r
}

// all returns the destinations of all of the customer's subscriptions.
func (s Side) all() []Destination {
	all := slices.Clone(s.Destinations)
	for _, other := range s.Others {
		all = append(all, other.Destinations...)
	}
	return all
}

// SubscribedSince returns the earliest start of the current periods of the customer's subscriptions, or nil if there are
// no subscriptions.
func (s *Side) SubscribedSince() (since *time.Time) {
	if s == nil {
		return nil
	}
	for _, side := range append([]Side{*s}, s.Others...) {
		if start := side.Period.Start; side.Subscription != "" && (since == nil || start.Before(*since)) {
			since = &start
		}
	}
	return since
}

// otherSubscriptions returns the other subscriptions of the customer, or nil if its state at the provider is unknown.
func otherSubscriptions(s *Side) []Side {
	if s == nil {
		return nil
	}
	return s.Others
}

// regrouping is the state of a call to Regroup.
type regrouping struct {
	main    Facts
	streams []Facts
}

// streamFor returns the number of the billing schedule for a subscription. It reuses a schedule that no longer has a
// subscription and contains a meter that the new subscription can bill. Otherwise it adds a schedule.
func (g *regrouping) streamFor(side Side) int {
	n := slices.IndexFunc(g.streams, func(f Facts) bool {
		return f.Stream > 0 && !f.subscribed() && slices.ContainsFunc(side.Destinations, func(d Destination) bool {
			return d.takes() && g.last(d.MeterID).Stream == f.Stream
		})
	})
	if n < 0 {
		n = len(g.streams)
		g.streams = append(g.streams, g.main.OfStream(n))
	}
	g.streams[n].Side = &side
	return n
}

// last returns the meter's last Feed. Without one, the meter belongs to schedule 0 from the beginning.
func (g *regrouping) last(meter metering.MeterID) (last Feed) {
	last.MeterID = meter
	for _, feed := range g.main.Feeds {
		if feed.MeterID == meter {
			last = feed
		}
	}
	return last
}

// move returns the Feed that moves the meter to another billing schedule. moves is false if the meter stays.
func (g *regrouping) move(meter metering.MeterID) (feed Feed, moves bool) {
	last := g.last(meter)
	if last.From.After(g.main.Now) || g.streams[last.Stream].takes(meter) {
		return feed, false
	}
	to := slices.IndexFunc(g.streams, func(f Facts) bool { return f.takes(meter) })
	if to < 0 {
		return feed, false
	}
	return Feed{meter, to, g.moveTime(meter, last, g.streams[to])}, true
}

// moveTime returns the instant at which the meter moves to the new billing schedule. It is the latest of these
// instants:
//   - the start of the meter's last Feed, and BillingStartsAt
//   - the start of the current subscription period, and of the first stored period, of the new schedule
//   - the ends of all closed periods of both schedules
//   - the ends of the periods in which the old schedule reported the meter
//   - the ends of the periods in which the meter belonged to the new schedule before
//
// Each end is the end as of Now, see shorten.
// So closed or reported usage never changes its schedule, and all usage has a schedule.
func (g *regrouping) moveTime(meter metering.MeterID, last Feed, next Facts) time.Time {
	from := last.From
	notBefore := func(t time.Time) {
		if t.After(from) {
			from = t
		}
	}
	notBefore(next.current().Start)
	if starts := g.main.Customer.BillingStartsAt; starts != nil {
		notBefore(*starts)
	}
	for _, p := range g.streams[last.Stream].shortened() {
		if p.ClosedAt != nil || g.streams[last.Stream].reported(meter, p) {
			notBefore(p.End)
		}
	}
	for i, p := range next.shortened() {
		if i == 0 {
			notBefore(p.Start)
		}
		if p.ClosedAt != nil || len(next.Feeds) > 0 && !next.fed(meter, p.Range).Empty() {
			notBefore(p.End)
		}
	}
	return from
}

// reported reports whether a report of the meter's usage in the period was accepted, or still can be.
func (f *Facts) reported(meter metering.MeterID, p Period) bool {
	return containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && r.about(p) && r.Standing.Any })
}

// takes reports whether usage of the meter can be reported from the billing schedule. Receivers of statements get all
// meters from schedule 0.
func (f *Facts) takes(meter metering.MeterID) bool {
	switch {
	case f.Stream > 0:
		return f.subscribed() && slices.ContainsFunc(f.Side.Destinations, func(d Destination) bool { return d.MeterID == meter && d.takes() })
	case f.Connection.Statements:
		return true
	}
	return slices.ContainsFunc(slices.Concat(f.Side.Destinations, f.Side.Charges), func(d Destination) bool { return d.MeterID == meter && d.takes() })
}

// takes reports whether the destination accepts reports.
func (d Destination) takes() bool { return d.Excluded.Code == "" }
