package billing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

var (
	heldAt   = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	heldOf   = uuid.MustParse("01900000-0000-7000-8000-000000000001")
	released = uuid.MustParse("01900000-0000-7000-8000-000000000002")
	charged  = uuid.MustParse("01900000-0000-7000-8000-000000000003")
)

func amount(text string) metering.Decimal { return metering.MustDecimal(text) }

// agreeing returns the facts of a held invoice that agrees with the reports, an hour after the grace. The invoice has a
// metered line of meter 7, a flat fee, and a charge of Odometer for late usage.
func agreeing() billing.HoldFacts {
	each, report := amount("0.05"), charged
	draft := func() billing.Draft {
		return billing.Draft{
			Automatic: true, FinalizesAt: heldAt.Add(5 * 24 * time.Hour), Settings: "as it was", Currency: "USD",
			Lines: []billing.DraftLine{
				{ID: "il_1", MeterID: 7, Item: "si_1", Price: "price_1", Metered: true, Quantity: amount("10"), Amount: amount("0.5"), UnitPrice: &each},
				{ID: "il_2", Price: "price_fee", Quantity: amount("1"), Amount: amount("20")},
				{ID: "il_3", ReportID: &report, Quantity: amount("1"), Amount: amount("1.25")},
			},
		}
	}
	return billing.HoldFacts{
		Now: heldAt.Add(73 * time.Hour), GraceUntil: heldAt.Add(72 * time.Hour), Deadline: heldAt.Add(5 * 24 * time.Hour),
		Before: draft(), Draft: draft(), Hold: billing.HoldAction{ID: heldOf, State: billing.Accepted}, Sync: billing.HeldSync{Status: metering.SyncSucceeded},
		Places: []billing.HeldPlace{{
			MeterID: 7, Reported: amount("12"), Counted: amount("12"), Terms: &billing.Terms{OverageRate: amount("0.05"), Currency: "USD"},
		}},
		Charges: map[uuid.UUID]metering.Decimal{charged: amount("1.25")},
	}
}

// codesOf returns the codes of the decision's reasons.
func codesOf(d billing.HoldDecision) (codes []billing.HoldCode) {
	for _, r := range d.Reasons {
		codes = append(codes, r.Code)
	}
	return codes
}

func TestAHeldInvoiceIsReleasedWhenEverythingAgrees(t *testing.T) {
	t.Parallel()
	d := agreeing().Decide()
	require.Equal(t, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, d)
}

func TestHeldInvoiceWaitsForGraceSyncAndCount(t *testing.T) {
	t.Parallel()
	early := func(f *billing.HoldFacts) { f.Now = f.GraceUntil.Add(59 * time.Minute) }
	for name, c := range map[string]struct {
		change func(f *billing.HoldFacts)
		want   billing.HoldDecision
		codes  []billing.HoldCode
	}{
		"the grace": {func(f *billing.HoldFacts) { f.Now = f.GraceUntil.Add(-time.Second) },
			billing.HoldDecision{State: billing.Held, Until: heldAt.Add(72 * time.Hour)}, nil},
		"a sync that was not asked for": {func(f *billing.HoldFacts) { f.Sync.Status = "" }, billing.HoldDecision{State: billing.Held, Sync: true}, nil},
		"a sync that runs": {func(f *billing.HoldFacts) { early(f); f.Sync.Status = metering.SyncRunning },
			billing.HoldDecision{State: billing.Held}, []billing.HoldCode{billing.HoldSyncOpen}},
		"a sync that has failed": {func(f *billing.HoldFacts) { early(f); f.Sync.Status = metering.SyncFailed },
			billing.HoldDecision{State: billing.Held, Sync: true}, []billing.HoldCode{billing.HoldSyncFailed}},
		"a count": {func(f *billing.HoldFacts) { early(f); f.Places[0].Counted = amount("11") },
			billing.HoldDecision{State: billing.Held}, []billing.HoldCode{billing.HoldNotCounted}},
		"a count, for too long": {func(f *billing.HoldFacts) { f.Places[0].Counted = amount("11") },
			billing.HoldDecision{State: billing.HoldDisagrees}, []billing.HoldCode{billing.HoldNotCounted}},
		"a report in doubt, for too long": {func(f *billing.HoldFacts) { f.Places[0].Outstanding = true },
			billing.HoldDecision{State: billing.HoldDisagrees}, []billing.HoldCode{billing.HoldOnItsWay}},
		"half of the time there is, where that is little": {
			func(f *billing.HoldFacts) {
				f.Deadline = f.GraceUntil.Add(time.Hour)
				f.Draft.FinalizesAt, f.Now, f.Places[0].Counted = f.Deadline, f.GraceUntil.Add(30*time.Minute), amount("13")
			},
			billing.HoldDecision{State: billing.HoldDisagrees}, []billing.HoldCode{billing.HoldNotCounted}},
		"whoever may be sending its release": {func(f *billing.HoldFacts) {
			f.Release = billing.HoldAction{ID: released, State: billing.Sending, LeasedUntil: f.Now.Add(time.Second)}
		}, billing.HoldDecision{State: billing.HoldReleasing, Until: heldAt.Add(73*time.Hour + time.Second)}, nil},
		"nobody whose time to send it is over": {func(f *billing.HoldFacts) {
			f.Release = billing.HoldAction{ID: released, State: billing.Sending, LeasedUntil: f.Now}
		}, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, nil},
		"not the grace that is over": {func(f *billing.HoldFacts) { f.Now = f.GraceUntil }, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := agreeing()
			c.change(&f)
			d := f.Decide()
			require.Equal(t, c.codes, codesOf(d))
			d.Reasons = nil
			require.Equal(t, c.want, d)
		})
	}
}

func TestDiscrepancyKeepsInvoiceHeldUntilOperatorReleases(t *testing.T) {
	t.Parallel()
	for code, change := range map[billing.HoldCode]func(f *billing.HoldFacts){
		billing.HoldNoLine: func(f *billing.HoldFacts) {
			f.Places = append(f.Places, billing.HeldPlace{MeterID: 8, Reported: amount("1"), Counted: amount("1")})
		},
		billing.HoldExcluded: func(f *billing.HoldFacts) {
			f.Sync.Excluded = []billing.Exclusion{{MeterID: 7, ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedBackfilling}}}
		},
		billing.HoldPriceDiffers:  func(f *billing.HoldFacts) { f.Places[0].Terms.OverageRate = amount("0.06") },
		billing.HoldChargeDiffers: func(f *billing.HoldFacts) { f.Charges[charged] = amount("1.26") },
		billing.HoldUnknownCharge: func(f *billing.HoldFacts) { f.Charges = nil },
	} {
		f := agreeing()
		change(&f)
		d := f.Decide()
		require.Equal(t, billing.HoldDisagrees, d.State, code)
		require.Equal(t, []billing.HoldCode{code}, codesOf(d))
		require.False(t, d.Release)
		f.Asked = true
		require.Equal(t, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, f.Decide(), "an operator has decided")
	}
}

// settingLine returns the facts of a held invoice with a line of meter 7 that is billed in amounts. The line was 1.25
// USD at the hold, and a later report set it to 1.75 USD.
func settingLine() billing.HoldFacts {
	f, later := agreeing(), uuid.MustParse("01900000-0000-7000-8000-000000000004")
	f.Places, f.Before.Lines, f.Draft.Lines = nil, f.Before.Lines[1:], f.Draft.Lines[1:]
	f.Draft.Lines[1].ReportID, f.Draft.Lines[1].Amount = &later, amount("1.75")
	f.Lines = []billing.HeldLine{{MeterID: 7, ReportID: later, Amount: amount("1.75")}}
	f.Charges[later] = amount("1.75")
	return f
}

func TestHeldInvoiceIsReleasedOnlyWithLineOfLastReport(t *testing.T) {
	t.Parallel()
	require.Equal(t, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, settingLine().Decide())
	for name, c := range map[string]struct {
		change func(f *billing.HoldFacts)
		state  billing.HoldState
		code   billing.HoldCode
	}{
		"a report before the last one has set it": {
			func(f *billing.HoldFacts) {
				f.Draft.Lines[1].ReportID, f.Charges[charged] = new(charged), amount("1.75")
			}, billing.HoldDisagrees, billing.HoldNoLine,
		},
		"it is on another invoice": {func(f *billing.HoldFacts) { f.Before.Lines, f.Draft.Lines = f.Before.Lines[:1], f.Draft.Lines[:1] }, billing.HoldDisagrees, billing.HoldNoLine},
		"somebody has edited it":   {func(f *billing.HoldFacts) { f.Draft.Lines[1].Amount = amount("1") }, billing.HoldDisagrees, billing.HoldChargeDiffers},
		"somebody has deleted it":  {func(f *billing.HoldFacts) { f.Draft.Lines = f.Draft.Lines[:1] }, billing.HoldTheirs, billing.HoldChanged},
		"a report is on its way":   {func(f *billing.HoldFacts) { f.Now, f.Lines[0].Outstanding = f.GraceUntil, true }, billing.Held, billing.HoldOnItsWay},
		"its meter has been left out": {func(f *billing.HoldFacts) {
			f.Sync.Excluded = []billing.Exclusion{{MeterID: 7, ExclusionReason: billing.NoTarget("it has credits")}}
		}, billing.HoldDisagrees, billing.HoldExcluded},
	} {
		f := settingLine()
		c.change(&f)
		d := f.Decide()
		require.Equal(t, c.state, d.State, name)
		require.Equal(t, []billing.HoldCode{c.code}, codesOf(d), name)
	}
	f := settingLine()
	f.Lines[0].ReportID, f.Lines[0].Amount, f.Draft.Lines = uuid.Nil, amount("0"), f.Draft.Lines[:1]
	f.Before.Lines = f.Before.Lines[:1]
	f.Sync.Excluded = []billing.Exclusion{{MeterID: 7, ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedNoInvoiceLine}}}
	require.Equal(t, billing.HoldReleasing, f.Decide().State, "nothing of it was charged")
}

func TestHeldInvoiceIsReleasedDespiteHarmlessDifferences(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *billing.HoldFacts){
		"the units of a draft, which are of some earlier moment": func(f *billing.HoldFacts) {
			f.Draft.Lines[0].Quantity, f.Draft.Lines[0].Amount = amount("11"), amount("0.55")
		},
		"the units of a draft, which are all": func(f *billing.HoldFacts) {
			f.Draft.Lines[0].Quantity, f.Draft.Lines[0].Amount = amount("12"), amount("0.6")
		},
		"the units of a draft, of which some were taken back": func(f *billing.HoldFacts) {
			f.Places[0].Reported, f.Places[0].Counted = amount("8"), amount("8")
			f.Draft.Lines[0].Quantity, f.Draft.Lines[0].Amount = amount("8"), amount("0.4")
		},
		"the units of a meter that was not read": func(f *billing.HoldFacts) {
			f.Places = nil
			f.Draft.Lines[0].Quantity, f.Draft.Lines[0].Amount = amount("13"), amount("0.65")
		},
		"a meter without usage": func(f *billing.HoldFacts) { f.Places = append(f.Places, billing.HeldPlace{MeterID: 8}) },
		"usage records after the border": func(f *billing.HoldFacts) {
			f.Sync.Excluded = []billing.Exclusion{{MeterID: 7, ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedPeriodOver}}}
		},
		"a meter that is on no invoice": func(f *billing.HoldFacts) {
			f.Sync.Excluded = []billing.Exclusion{{MeterID: 9, ExclusionReason: billing.NoTarget("no item")}}
		},
		"a price that is not known": func(f *billing.HoldFacts) {
			f.Places[0].Terms.OverageRate, f.Draft.Lines[0].UnitPrice = amount("9"), nil
		},
		"a meter without a price":              func(f *billing.HoldFacts) { f.Places[0].Terms = nil },
		"a charge of ours that has come since": func(f *billing.HoldFacts) { f.Before.Lines = f.Before.Lines[:2] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := agreeing()
			change(&f)
			require.True(t, f.Decide().Release)
		})
	}
}

func TestDraftChangedAtProviderIsNotReleasedOnRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *billing.HoldFacts)
		code   billing.HoldCode
	}{
		"auto_advance is off":       {func(f *billing.HoldFacts) { f.Draft.Automatic = false }, billing.HoldNotAutomatic},
		"it leaves at another time": {func(f *billing.HoldFacts) { f.Draft.FinalizesAt = heldAt }, billing.HoldRescheduled},
		"it is deleted":             {func(f *billing.HoldFacts) { f.Draft = billing.Draft{Gone: true} }, billing.HoldInvoiceGone},
		"a setting":                 {func(f *billing.HoldFacts) { f.Draft.Settings = "another" }, billing.HoldChanged},
		"a fee costs less":          {func(f *billing.HoldFacts) { f.Draft.Lines[1].Amount = amount("19") }, billing.HoldChanged},
		"a line is gone":            {func(f *billing.HoldFacts) { f.Draft.Lines = f.Draft.Lines[:2] }, billing.HoldChanged},
		"a fee has another price":   {func(f *billing.HoldFacts) { f.Draft.Lines[1].Price = "price_other" }, billing.HoldChanged},
		"a fee of as much as a charge of ours is gone": {func(f *billing.HoldFacts) {
			f.Before.Lines = append(f.Before.Lines, billing.DraftLine{ID: "il_4", Quantity: amount("1"), Amount: amount("1.25")})
		}, billing.HoldChanged},
		"a charge of ours names no report any more, and is less": {func(f *billing.HoldFacts) {
			f.Draft.Lines[2].ReportID, f.Draft.Lines[2].Amount = nil, amount("1")
		}, billing.HoldChanged},
		"a line is new":                  {func(f *billing.HoldFacts) { f.Draft.Lines = append(f.Draft.Lines, billing.DraftLine{ID: "il_4"}) }, billing.HoldChanged},
		"usage has another amount":       {func(f *billing.HoldFacts) { f.Draft.Lines[0].Amount = amount("0.4") }, billing.HoldChanged},
		"usage is less than it ever was": {func(f *billing.HoldFacts) { f.Draft.Lines[0].Quantity = amount("9") }, billing.HoldChanged},
		"usage is more than is counted":  {func(f *billing.HoldFacts) { f.Draft.Lines[0].Quantity = amount("13") }, billing.HoldChanged},
		"a usage line is gone":           {func(f *billing.HoldFacts) { f.Draft.Lines = f.Draft.Lines[1:] }, billing.HoldChanged},
		"a usage line is new": {func(f *billing.HoldFacts) {
			f.Draft.Lines = append(f.Draft.Lines, billing.DraftLine{ID: "il_4", Item: "si_2", Metered: true})
		}, billing.HoldChanged},
		"another provider": {func(f *billing.HoldFacts) { f.Replaced = true }, billing.HoldConnectionReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := agreeing()
			f.Asked = true
			c.change(&f)
			d := f.Decide()
			require.Equal(t, billing.HoldTheirs, d.State, "though an operator has asked for its release")
			require.Equal(t, []billing.HoldCode{c.code}, codesOf(d))
			require.False(t, d.Release)
		})
	}
}

func TestHoldStateShowsHowInvoiceBecameFinal(t *testing.T) {
	t.Parallel()
	after, before := heldAt.Add(6*24*time.Hour), heldAt.Add(3*24*time.Hour)
	for name, c := range map[string]struct {
		final         time.Time
		hold, release billing.State
		state         billing.HoldState
		settled       []billing.Resolved
	}{
		"released":                         {before, billing.Accepted, billing.Accepted, billing.HoldReleased, nil},
		"released, and nobody heard of it": {before, billing.Accepted, billing.Sending, billing.HoldReleased, []billing.Resolved{{ID: released, State: billing.Accepted}}},
		"at its deadline":                  {heldAt.Add(5 * 24 * time.Hour), billing.Accepted, "", billing.HoldExpired, nil},
		"by its deadline":                  {after, billing.Accepted, "", billing.HoldExpired, nil},
		"by its deadline, before it was released": {after, billing.Accepted, billing.Planned, billing.HoldExpired,
			[]billing.Resolved{{ID: released, State: billing.Rejected}}},
		"by its deadline, and nobody heard of the hold": {after, billing.Sending, "", billing.HoldExpired, []billing.Resolved{{ID: heldOf, State: billing.Accepted}}},
		"by people":               {before, billing.Accepted, "", billing.HoldFinalized, nil},
		"before it was held":      {before, billing.Planned, "", billing.HoldFinalized, []billing.Resolved{{ID: heldOf, State: billing.Rejected}}},
		"as the hold was refused": {after, billing.Rejected, "", billing.HoldFinalized, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := agreeing()
			f.Draft.FinalizedAt, f.Hold.State = c.final, c.hold
			if c.release != "" {
				f.Release = billing.HoldAction{ID: released, State: c.release}
			}
			d := f.Decide()
			require.Equal(t, c.state, d.State)
			require.Equal(t, c.settled, d.Settle)
			require.False(t, d.Release)
			require.True(t, d.State.Ended())
		})
	}
}

func TestHoldIsSentUntilProviderAcceptsIt(t *testing.T) {
	t.Parallel()
	for _, state := range []billing.State{billing.Planned, billing.Sending, billing.InDoubt} {
		f := agreeing()
		f.Hold.State, f.Draft.FinalizesAt = state, heldAt.Add(time.Hour)
		require.Equal(t, billing.HoldDecision{State: billing.HoldPlanned, SendHold: true}, f.Decide(), state)
		f.Draft.FinalizesAt = f.Deadline
		if state == billing.Planned { // Odometer did not set the time: the hold was not sent
			require.Equal(t, billing.HoldDecision{State: billing.HoldPlanned, SendHold: true}, f.Decide())
			continue
		}
		require.Equal(t, []billing.Resolved{{ID: heldOf, State: billing.Accepted}}, f.Decide().Settle, "it is seen to have it")
	}
	f := agreeing()
	f.Hold.State, f.Hold.Response, f.Draft.FinalizesAt = billing.Rejected, "Stripe refused", heldAt.Add(time.Hour)
	d := f.Decide()
	require.Equal(t, billing.HoldRefused, d.State)
	require.Equal(t, "the invoice is not held: Stripe refused", d.Reasons[0].Text("").Message)
}

func TestUndeliveredReleaseIsRetriedOrWithdrawn(t *testing.T) {
	t.Parallel()
	f := agreeing()
	f.Release = billing.HoldAction{ID: released, State: billing.Sending}
	require.Equal(t, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, f.Decide(), "with the same bytes")
	f.Places[0].Counted = amount("11")
	d := f.Decide()
	require.Equal(t, billing.HoldDisagrees, d.State)
	require.Equal(t, []billing.Resolved{{ID: released, State: billing.Rejected}}, d.Settle)

	f = agreeing()
	f.Release = billing.HoldAction{ID: released, State: billing.Rejected, Response: billing.Withdrawn}
	require.Equal(t, billing.HoldDecision{State: billing.HoldReleasing, Release: true}, f.Decide())
	f.Release.Response = "the API key lacks a permission"
	d = f.Decide()
	require.Equal(t, billing.HoldDisagrees, d.State)
	require.True(t, d.Release)
	require.Equal(t, "the invoice could not be released: the API key lacks a permission", d.Reasons[0].Text("").Message)
}

// An operator can release an invoice only in the states HoldPlanned, Held and HoldDisagrees.
func TestReleasableIsTrueForPlannedHeldAndDisagrees(t *testing.T) {
	t.Parallel()
	var releasable []billing.HoldState
	for _, state := range billing.HoldState("").Values() {
		require.False(t, state.Ended() && state.Releasable(), state)
		if state.Releasable() {
			releasable = append(releasable, state)
		}
	}
	require.Equal(t, []billing.HoldState{billing.HoldPlanned, billing.Held, billing.HoldDisagrees}, releasable)
}

// Odometer's price differs from the unit price on the invoice if any unit costs a different amount, or if the currency
// differs. A meter with several lines is listed once.
func TestHoldComparesPriceWithInvoiceUnitPrice(t *testing.T) {
	t.Parallel()
	each := amount("0.05")
	terms := billing.Terms{OverageRate: each, Currency: "USD"}
	for name, c := range map[string]struct {
		change func(*billing.Terms)
		want   int
	}{
		"TheSame":       {func(*billing.Terms) {}, 0},
		"ARate":         {func(t *billing.Terms) { t.OverageRate = amount("0.06") }, 1},
		"ABasePrice":    {func(t *billing.Terms) { t.BasePrice = amount("1") }, 1},
		"IncludedUnits": {func(t *billing.Terms) { t.IncludedUnits = amount("1") }, 1},
		"ACurrency":     {func(t *billing.Terms) { t.Currency = "EUR" }, 1},
	} {
		f := agreeing()
		other := terms
		c.change(&other)
		f.Places = append(f.Places, billing.HeldPlace{MeterID: 8, Terms: &other})
		for _, item := range []string{"si_2", "si_3"} {
			line := billing.DraftLine{ID: "il_" + item, MeterID: 8, Item: item, Metered: true, UnitPrice: &each}
			f.Before.Lines, f.Draft.Lines = append(f.Before.Lines, line), append(f.Draft.Lines, line)
		}
		d := f.Decide()
		require.Len(t, d.Reasons, c.want, name)
		require.Equal(t, c.want == 0, d.Release, name)
	}
}

func TestOursReportsWhetherDraftBillsMeterOrReport(t *testing.T) {
	t.Parallel()
	for want, lines := range map[bool][][]billing.DraftLine{
		true:  {{{}, {MeterID: 7}}, {{ReportID: &charged}}, {{MeterID: 7, ReportID: &charged}}},
		false: {nil, {{ID: "il_1", Price: "price_fee"}}},
	} {
		for _, l := range lines {
			require.Equal(t, want, billing.Draft{Lines: l}.Ours())
		}
	}
}

func TestSameHoldActionHasSameIDAndState(t *testing.T) {
	t.Parallel()
	a := billing.HoldAction{ID: heldOf, State: billing.Sending, Response: "none"}
	require.True(t, a.Same(billing.HoldAction{ID: heldOf, State: billing.Sending}))
	require.False(t, a.Same(billing.HoldAction{ID: heldOf, State: billing.Accepted}))
	require.False(t, a.Same(billing.HoldAction{ID: released, State: billing.Sending}))
}
