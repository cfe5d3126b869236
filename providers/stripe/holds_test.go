package stripe_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// drafted is a new draft and a provider that can hold it.
type drafted struct {
	*testing.T
	bundle
	stripe.Provider
	credentials providers.Credentials
	invoice     string
}

// newDrafted returns the draft of March's invoice, which the fake has just created.
func newDrafted(t *testing.T, version string) drafted {
	t.Helper()
	b := setupVersion(t, version)
	b.fake.Advance(april.Sub(noon))
	return drafted{t, b, stripe.NewProvider(b.client), providers.Credentials{Secret: key}, b.fake.State().Accounts[0].Invoices[0].ID}
}

// draft reads the draft.
func (d drafted) draft() billing.Draft {
	d.Helper()
	draft, err := d.Draft(d.Context(), d.credentials, providers.InvoiceQuestion{ID: d.invoice})
	require.NoError(d, err)
	return draft
}

// act sends a framed hold or release once, as a new report.
func (d drafted) act(framed billing.Framed, err error) (providers.Sending, providers.Outcome) {
	d.Helper()
	require.NoError(d, err)
	s := providers.Sending{Series: billing.Series{Kind: billing.ActionReport}, ReportID: uuid.New(), Body: framed.Body, Now: d.fake.Now()}
	return s, d.Send(d.Context(), d.credentials, s)
}

// found returns the state in which Find finds a sent hold or release.
func (d drafted) found(s providers.Sending) billing.State {
	d.Helper()
	found, err := d.Find(d.Context(), d.credentials, s, providers.Place{}, metering.Decimal{})
	require.NoError(d, err)
	return found.State
}

func TestHeldDraftIsFinalizedAtItsDeadline(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "")
	before := d.draft()
	require.True(t, before.Automatic)
	require.Equal(t, april.Add(time.Hour), before.FinalizesAt)
	require.Equal(t, "USD", before.Currency)
	deadline := april.Add(5 * 24 * time.Hour)
	s, outcome := d.act(d.FrameHold(d.invoice, deadline))
	require.Equal(t, providers.Outcome{State: billing.Accepted, Answer: "Stripe answered 200"}, outcome)
	require.Equal(t, billing.Accepted, d.found(s))
	require.Equal(t, outcome, d.Send(t.Context(), d.credentials, s), "again")

	held := d.draft()
	require.Equal(t, deadline, held.FinalizesAt)
	held.FinalizesAt = before.FinalizesAt
	require.Equal(t, before, held, "nothing else has changed")
	d.fake.Advance(4 * 24 * time.Hour)
	require.Zero(t, d.draft().FinalizedAt)
	d.fake.Advance(2 * 24 * time.Hour)
	require.Equal(t, deadline, d.draft().FinalizedAt, "Stripe lets it go")
}

func TestReleaseFinalizesDraft(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "")
	s, outcome := d.act(d.FrameRelease(d.invoice))
	require.Equal(t, billing.Accepted, outcome.State)
	require.Equal(t, billing.Accepted, d.found(s))
	require.False(t, d.draft().FinalizedAt.IsZero())

	s, outcome = d.act(d.FrameRelease(d.invoice))
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(outcome.Err), "it is final")
	require.Equal(t, billing.Accepted, d.found(s), "which is what was wanted")
}

func TestFindReportsWhetherHoldOrReleaseArrived(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "")
	for _, b := range []stripetest.Behaviour{{Status: 503, Times: 1}, {Status: 500, Mode: stripetest.Saved, Times: 1}} {
		d.fake.Behave(b)
		s, outcome := d.act(d.FrameHold(d.invoice, april.Add(48*time.Hour)))
		require.Equal(t, metering.CodeProviderDown, metering.CodeOf(outcome.Err))
		require.Empty(t, d.found(s))
	}
	d.fake.Behave(stripetest.Behaviour{DropAnswer: true, Times: 1})
	s, outcome := d.act(d.FrameRelease(d.invoice))
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(outcome.Err))
	require.Equal(t, billing.Accepted, d.found(s), "the answer was lost")
}

func TestOldAPIVersionRefusesHold(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "2023-10-16")
	_, outcome := d.act(d.FrameHold(d.invoice, april.Add(48*time.Hour)))
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(outcome.Err))
	require.ErrorContains(t, outcome.Err, "400 parameter_unknown")
}

func TestDraftIsUnchangedAfterJSONRoundTrip(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "")
	before := d.draft()
	text, err := json.Marshal(before)
	require.NoError(t, err)
	var kept billing.Draft
	require.NoError(t, json.Unmarshal(text, &kept))
	again, err := json.Marshal(kept)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(again))
	require.Len(t, kept.Lines, 5)
	require.Equal(t, before.Settings, kept.Settings)
}

func TestDraftOfUnknownInvoiceIsGone(t *testing.T) {
	t.Parallel()
	d := newDrafted(t, "")
	draft, err := d.Draft(t.Context(), d.credentials, providers.InvoiceQuestion{ID: "in_unknown"})
	require.NoError(t, err)
	require.True(t, draft.Gone)
}
