package billing_test

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// rounds returns how many period boundaries can pass after the last step of a simulated customer. With two
// subscriptions, the boundaries of both have to pass.
func (l *life) rounds() int {
	if l.twofold {
		return 30
	}
	return 12
}

// allClosed reports whether the periods of all billing schedules are closed up to latest. The first schedule
// must have at least two closed periods.
func (l *life) allClosed(latest time.Time) bool {
	closed := l.closed(latest)
	for _, of := range l.streams[1:] {
		closed = closed && !slices.ContainsFunc(of.periods, func(p billing.Period) bool { return p.ClosedAt == nil && !p.Start.After(latest) })
	}
	return closed
}

// checkRegrouped checks that the customer is out of sync if billing has begun and the customer's billing
// schedules, or the meters that feed them, have to change.
func (l *life) checkRegrouped() {
	begins := l.customer.BillingStartsAt
	if change := billing.Regroup(l.factsOfAll(l.now)); !change.Empty() && !l.outOfSync(l.now) && (begins == nil || !begins.After(l.now)) {
		l.failf("streams are to change, and nobody looks: %+v", change)
	}
}

// checkFed checks that each event since the customer's first period lies in a period of the billing schedule
// that its meter feeds at the event's time.
func (l *life) checkFed(latest time.Time) {
	for _, e := range l.events {
		if !l.twofold || len(l.periods) == 0 || e.at.Before(l.periods[0].Start) || e.at.After(latest) || int(e.meter) > len(l.meters) {
			continue
		}
		of := l.streams[l.streamAt(e.meter, e.at)]
		i := slices.IndexFunc(of.periods, func(p billing.Period) bool { return p.Contains(e.at) })
		if i < 0 {
			l.failf("usage of meter %d at %s is in no period of stream %d", e.meter, e.at, of.stream)
			return
		}
	}
}

// checkInvoicedTogether does what checkInvoiced does, for a customer with several billing schedules. It
// checks periods that share an invoice together, even if they belong to different schedules.
func (l *life) checkInvoicedTogether() {
	for _, m := range l.meters {
		for _, test := range []bool{false, true} {
			for rest := l.fedPeriods(m.ID); len(rest) > 0; {
				together := rest[:1:1]
				rest = rest[1:]
				for n := 0; n < len(rest); n++ {
					if l.haveInCommon(m.ID, together, rest[n], test) {
						together, rest = append(together, rest[n]), slices.Delete(slices.Clone(rest), n, n+1)
						n = -1
					}
				}
				l.checkTogether(m.ID, together, test)
			}
		}
	}
}

// fedPeriods returns the periods of all billing schedules that the meter feeds.
func (l *life) fedPeriods(meter metering.MeterID) (all []billing.Period) {
	for _, of := range l.streams {
		for _, p := range of.periods {
			if of.isFedIn(meter, p.Range) {
				all = append(all, p)
			}
		}
	}
	return all
}

// haveInCommon reports whether an invoice of one mode is on both sides: it bills, or may bill, the meter in one of the
// periods and in the other one.
func (l *life) haveInCommon(meter metering.MeterID, some []billing.Period, other billing.Period, test bool) bool {
	return slices.ContainsFunc(l.inMode(test), func(f *farSide) bool {
		return slices.ContainsFunc(f.invoices(), func(in *invoice) bool {
			return l.isOn(f, in, meter, some) && l.isOn(f, in, meter, []billing.Period{other})
		})
	})
}

// isOn reports whether an invoice bills, or may bill, usage of the meter in one of the periods. With two
// subscriptions, one of these must hold:
//   - Usage of the period was reported to the invoice.
//   - The invoice overlaps with the period and bills the period's subscription.
//   - The invoice overlaps with the period and has a line for the meter, and the period's billing schedule answers
//     for unreported units of the meter (see answersFor).
func (l *life) isOn(f *farSide, in *invoice, meter metering.MeterID, periods []billing.Period) bool {
	if !l.twofold {
		return f.bills(in, meter, periods)
	}
	return slices.ContainsFunc(periods, func(p billing.Period) bool {
		if slices.ContainsFunc(f.calls, func(c *call) bool { return c.invoice == in && c.Lines[0].MeterID == meter && c.isOf(p.Place()) }) {
			return true
		}
		c := f.contractOf(in)
		return !in.Intersect(p.Range).Empty() && (c.id == p.Subscription.ID || f.names(c, in, meter) && l.answersFor(f, c, in, meter, p.Stream))
	})
}

// follower returns the billing schedule of the contract, or 0 if the contract has no schedule of its own.
func (l *life) follower(f *farSide, c *contract) (stream int) {
	for _, of := range l.following {
		if of.Connection == f.connection && of.Subscription == c.id {
			stream = of.Stream
		}
	}
	return stream
}

// answersFor reports whether unreported units of the meter on an invoice belong to the billing schedule. They
// belong to the contract's schedule and, if the meter does not feed that one during the invoice's period, to
// every other one.
func (l *life) answersFor(f *farSide, c *contract, in *invoice, meter metering.MeterID, stream int) bool {
	follower := l.follower(f, c)
	return follower == stream || !l.streams[follower].isFedIn(meter, in.Range)
}

// contractOf returns the contract of an invoice, or nil.
func (f *farSide) contractOf(in *invoice) *contract {
	for _, contracts := range f.contracts {
		for _, c := range contracts {
			if slices.Contains(c.invoices, in) {
				return c
			}
		}
	}
	return nil
}

// changesSubscription reports whether a plan moves a period to another subscription while the previous one
// may continue, or while the plan reports quantities of which the last one counts. The invoice that bills
// each report is determined only after such a plan is stored.
func (l *life) changesSubscription(plan billing.ReportPlan) bool {
	last := slices.ContainsFunc(plan.Reports, func(r billing.Report) bool { return r.Counting == billing.Latest })
	return (l.twofold || last) && slices.ContainsFunc(plan.Periods, func(p billing.Period) bool {
		return slices.ContainsFunc(l.periods, func(former billing.Period) bool {
			return former.Start.Equal(p.Start) && former.Subscription.ID != "" && former.Subscription.ID != p.Subscription.ID
		})
	})
}
