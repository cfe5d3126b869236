package billing

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Feed is that a meter feeds one of the customer's streams from an instant on,
// until it feeds another.
type Feed struct {
	MeterID metering.MeterID
	Stream  int
	From    time.Time
}

// Followed is a subscription that has a stream of its own.
type Followed struct {
	Subscription string
	Stream       int
}

// fed is the part of a range in which the meter feeds the stream.
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

// feeds says whether the meter feeds the stream now.
func (f *Facts) feeds(meter metering.MeterID) bool {
	return !f.fed(meter, metering.Range{Start: f.Now, End: f.Now.Add(time.Microsecond)}).Empty()
}

// FedIn are the parts of some ranges in which a meter feeds the stream.
func (f Facts) FedIn(meter metering.MeterID, ranges []metering.Range) (parts []metering.Range) {
	for _, r := range ranges {
		if part := f.fed(meter, r); !part.Empty() {
			parts = append(parts, part)
		}
	}
	return parts
}

// metersIn are the meters that feed the stream in a period.
func (f *Facts) metersIn(p Period) []metering.Meter {
	if len(f.Feeds) == 0 {
		return f.Meters
	}
	return slices.DeleteFunc(slices.Clone(f.Meters), func(m metering.Meter) bool { return f.fed(m.ID, p.Range).Empty() })
}

// Shows says whether a meter feeds the stream in the period: all of stream 0 are shown.
func (f Facts) Shows(p Period) bool { return f.Stream == 0 || len(f.metersIn(p)) > 0 }

// OfStream are those of the facts that are the customer's, as the facts of another
// of its streams, whose periods begin when its first meter begins to feed it.
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
	side := Side{Customer: f.Side.Customer, Destinations: f.Side.Destinations, Charges: f.Side.Charges} // its subscription is there no longer
	for _, other := range f.Side.Others {
		if slices.Contains(f.Followed, Followed{other.Subscription, stream}) {
			side = other
		}
	}
	f.Side = &side
	return f
}

// Regrouped is what changes about a customer's streams.
type Regrouped struct {
	Followed []Followed
	Feeds    []Feed
}

// Empty says whether nothing does.
func (r Regrouped) Empty() bool { return len(r.Followed)+len(r.Feeds) == 0 }

// Regroup decides which subscriptions get streams of their own, and which meters
// begin to feed another one: those that their own does not report, and another
// would. It is given the facts of all of a customer's streams, by number.
func Regroup(streams []Facts) (r Regrouped) {
	main := streams[0]
	if main.Connection == nil || main.Side == nil && !main.Connection.Statements {
		return r
	}
	g := regrouping{main: main, streams: slices.Clone(streams)}
	for _, other := range others(main.Side) {
		known := slices.ContainsFunc(main.Followed, func(of Followed) bool { return of.Subscription == other.Subscription })
		if !known && slices.ContainsFunc(other.Destinations, Destination.takes) {
			r.Followed = append(r.Followed, Followed{other.Subscription, g.streamFor(other)})
		}
	}
	for _, m := range main.Meters {
		if feed, moves := g.move(m.ID); moves {
			r.Feeds = append(r.Feeds, feed)
		}
	}
	return r
}

// all are the destinations of all of the customer's subscriptions.
func (s Side) all() []Destination {
	all := slices.Clone(s.Destinations)
	for _, other := range s.Others {
		all = append(all, other.Destinations...)
	}
	return all
}

func others(s *Side) []Side {
	if s == nil {
		return nil
	}
	return s.Others
}

// regrouping is Regroup at work.
type regrouping struct {
	main    Facts
	streams []Facts
}

// streamFor is the stream that a subscription's periods become: one that has lost
// its own subscription and has a meter of this one's, or a new one.
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

// last is what the meter feeds, from when on.
func (g *regrouping) last(meter metering.MeterID) (last Feed) {
	last.MeterID = meter
	for _, feed := range g.main.Feeds {
		if feed.MeterID == meter {
			last = feed
		}
	}
	return last
}

// move says whether the meter begins to feed another stream, and from when on.
func (g *regrouping) move(meter metering.MeterID) (feed Feed, moves bool) {
	last := g.last(meter)
	if last.From.After(g.main.Now) || g.streams[last.Stream].takes(meter) {
		return feed, false
	}
	to := slices.IndexFunc(g.streams, func(f Facts) bool { return f.takes(meter) })
	if to < 0 {
		return feed, false
	}
	return Feed{meter, to, g.from(meter, last, g.streams[to])}, true
}

// from is the instant from which the meter feeds the other stream: the start of
// its subscription's period, but after all periods of either that are closed, in
// which it was reported, or has fed it before, and not before the stream begins. So no
// usage that is closed, or reported, changes its place, and none is left without one.
func (g *regrouping) from(meter metering.MeterID, last Feed, to Facts) time.Time {
	from := last.From
	notBefore := func(t time.Time) {
		if t.After(from) {
			from = t
		}
	}
	notBefore(to.current().Start)
	if starts := g.main.Customer.BillingStartsAt; starts != nil {
		notBefore(*starts)
	}
	for _, p := range g.streams[last.Stream].Stored {
		if p.ClosedAt != nil || g.streams[last.Stream].reported(meter, p) {
			notBefore(p.End)
		}
	}
	for i, p := range to.Stored {
		if i == 0 {
			notBefore(p.Start)
		}
		if p.ClosedAt != nil || len(to.Feeds) > 0 && !to.fed(meter, p.Range).Empty() {
			notBefore(p.End)
		}
	}
	return from
}

// reported says whether anything was reported of the meter in the period.
func (f *Facts) reported(meter metering.MeterID, p Period) bool {
	return containsAny(f.Reported, func(r *Reported) bool { return r.MeterID == meter && r.about(p) && r.Standing.Any })
}

// takes says whether usage of the meter can be reported from the stream. Receivers
// of statements are sent those of stream 0.
func (f *Facts) takes(meter metering.MeterID) bool {
	switch {
	case f.Stream > 0:
		return f.subscribed() && slices.ContainsFunc(f.Side.Destinations, func(d Destination) bool { return d.MeterID == meter && d.takes() })
	case f.Connection.Statements:
		return true
	}
	return slices.ContainsFunc(slices.Concat(f.Side.Destinations, f.Side.Charges), func(d Destination) bool { return d.MeterID == meter && d.takes() })
}

func (d Destination) takes() bool { return d.Excluded == "" }
