package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// held creates a draft invoice of acme with a hold in the state disagrees.
func (b *bundle) held(t *testing.T) metering.HoldID {
	t.Helper()
	b.meter(t, "calls", "call")
	a := b.send(t, "PATCH", "/v1/tenant", `{"invoice_hold":{"enabled":true,"deadline_hours":24}}`)
	require.Equal(t, 200, a.status, a.body)
	acme := dbtest.Customer(t, b.store, b.tenant.ID, "acme")
	calls, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)
	connection := dbtest.Provider(t, b.store, b.tenant.ID, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: "acct_1", SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now(),
	}).ID
	end := b.now().UTC().Truncate(time.Second)
	in := metering.Invoice{
		ID: "in_1", Connection: connection, Customer: "cus_1", Subscription: "sub_1", Status: "draft", Renewal: true, Currency: "USD",
		Period: metering.Range{Start: end.AddDate(0, -1, 0), End: end}, CreatedAt: end,
	}
	require.NoError(t, b.store.Invoices.Save(t.Context(), b.tenant.ID, acme.ID, in, end))
	id, err := b.store.Holds.Begin(t.Context(), b.tenant.ID, ledger.NewHold{
		Customer: acme.ID, Invoice: in, Draft: billing.Draft{Automatic: true, Lines: []billing.DraftLine{{ID: "il_1", MeterID: calls.ID}}},
		Frame: func(time.Time) (billing.Framed, error) { return billing.Framed{Body: []byte(`{}`)}, nil },
	}, b.now())
	require.NoError(t, err)
	look, err := b.store.Holds.Look(t.Context(), b.tenant.ID, id, nil, b.now())
	require.NoError(t, err)
	ten, nine := metering.Whole(10), metering.Whole(9)
	_, err = b.store.Holds.Decided(t.Context(), b.tenant.ID, look, billing.HoldDecision{
		State: billing.HoldDisagrees, Reasons: []billing.HoldReason{{Code: billing.HoldNotCounted, MeterID: calls.ID, Ours: &ten, Theirs: &nine}},
	}, nil, b.now())
	require.NoError(t, err)
	return id
}

// hold sends a request about an invoice hold and returns the hold.
func (b *bundle) hold(t *testing.T, method, path, body string) (h client.InvoiceHold) {
	t.Helper()
	a := b.send(t, method, path, body)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &h))
	return h
}

func TestHeldInvoicesAreListedWithReasons(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.held(t).String()
	h := b.hold(t, "GET", "/v1/billing/holds/"+id, "")
	require.Equal(t, id, h.Id)
	require.Equal(t, "acme", h.ExternalId)
	require.Equal(t, "in_1", h.InvoiceId)
	require.EqualValues(t, "disagrees", h.State)
	require.Equal(t, h.Period.End.Add(72*time.Hour), h.GraceUntil)
	require.Equal(t, h.Period.End.Add(96*time.Hour), h.Deadline)
	require.Len(t, h.Reasons, 1)
	require.Equal(t, "calls", *h.Reasons[0].MeterSlug)
	require.Equal(t, "calls: the provider has accepted 10 units and has counted 9", h.Reasons[0].Message)
	require.Equal(t, billing.HoldReason{Code: billing.HoldNotCounted}.Text("").NextStep, h.Reasons[0].NextStep)
	require.Equal(t, []string{"release"}, h.Actions)
	require.EqualValues(t, "planned", h.Hold.State)
	require.Nil(t, h.Release)
	for query, want := range map[string]int{"": 1, "?state=disagrees": 1, "?state=held": 0, "?customer=acme": 1, "?customer=acme&state=released": 0} {
		a := b.send(t, "GET", "/v1/billing/holds"+query, "")
		require.Equal(t, 200, a.status, a.body)
		var list client.ListInvoiceHold
		require.NoError(t, json.Unmarshal([]byte(a.body), &list))
		require.Len(t, list.Data, want, query)
	}
	b.send(t, "GET", "/v1/billing/holds/hld_999999", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/billing/holds?customer=nobody", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/billing/holds?state=lost", "").problem(t, 422, "invalid")
}

func TestAHeldInvoiceIsReleasedWithAReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.held(t)
	path := "/v1/billing/holds/" + id.String() + "/release"
	for _, body := range []string{`{}`, `{"reason":""}`, `{"reason":"  "}`, `{"reason":"a\u0000"}`} {
		require.Contains(t, []string{"body", "body.reason"}, b.send(t, "POST", path, body).problem(t, 422, "invalid").Errors[0].Location, body)
	}
	h := b.hold(t, "POST", path, `{"reason":"the rest is a gift"}`)
	require.Equal(t, "the rest is a gift", h.Note)
	require.NotEmpty(t, h.ReleasedBy)
	require.Empty(t, h.Actions)
	require.Equal(t, []string{"release"}, b.temporal.runs.updates)
	require.Contains(t, b.temporal.runs.paused, workflows.HoldInvoiceID(b.tenant.ID, id))
	require.Equal(t, h.Note, b.hold(t, "POST", path, `{"reason":"again"}`).Note, "a repeat changes nothing")
	audit := b.send(t, "GET", "/v1/audit-log", "")
	require.Contains(t, audit.body, `"action":"hold.release","resource":"`+id.String()+`"`)
	require.Contains(t, audit.body, `"reason":"the rest is a gift"`)

	b.temporal.down.Store(true)
	b.send(t, "POST", path, `{"reason":"again"}`).problem(t, 503, "unavailable")
	b.temporal.down.Store(false)
	look, err := b.store.Holds.Look(t.Context(), b.tenant.ID, id, nil, b.now())
	require.NoError(t, err)
	_, err = b.store.Holds.Decided(t.Context(), b.tenant.ID, look, billing.HoldDecision{State: billing.HoldReleased}, nil, b.now())
	require.NoError(t, err)
	b.send(t, "POST", path, `{"reason":"again"}`).problem(t, 409, "conflict")
	b.send(t, "POST", "/v1/billing/holds/hld_999999/release", `{"reason":"none"}`).problem(t, 404, "not_found")
}

func TestHoldDeadlineAndGraceAreAtMost720Hours(t *testing.T) {
	t.Parallel()
	b := setup(t)
	save := func(body string) answer { return b.send(t, "PATCH", "/v1/tenant", body) }
	require.Equal(t, 200, save(`{"invoice_hold":{"deadline_hours":648}}`).status)
	require.Equal(t, 200, save(`{"invoice_hold":{"enabled":true}}`).status, "648 and 72 hours are 30 days")
	for _, body := range []string{`{"invoice_hold":{"deadline_hours":649}}`, `{"grace_hours":73}`, `{"invoice_hold":{"deadline_hours":0}}`} {
		p := save(body).problem(t, 422, "invalid")
		require.Equal(t, "body.invoice_hold.deadline_hours", p.Errors[0].Location, body)
	}
	require.Equal(t, "must be at most 647, which is 720 minus grace_hours", save(`{"grace_hours":73}`).problem(t, 422, "invalid").Errors[0].Message)
	require.Equal(t, 200, save(`{"invoice_hold":{"enabled":false},"grace_hours":720}`).status)
}
