package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/ledger"
)

// TestASyncExplainsTheExcludedMeters checks that the message is the cause at the provider if the sync recorded one.
func TestASyncExplainsTheExcludedMeters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	exclusion := func(slug string, reason billing.ExclusionReason) billing.Exclusion {
		b.meter(t, slug, slug)
		m, err := b.store.Meters.Get(t.Context(), b.tenant.ID, slug)
		require.NoError(t, err)
		return billing.Exclusion{MeterID: m.ID, MeterSlug: slug, ExclusionReason: reason}
	}
	const noItem = "no item of the customer's subscription has the meter's price"
	final := exclusion("calls", billing.ExclusionReason{Code: billing.ExcludedInvoiceFinal})
	unmapped := exclusion("images", billing.NoTarget(noItem))
	run := b.openSync(t)
	begun, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, acme.ID, b.now())
	require.NoError(t, err)
	_, err = b.store.Syncs.Finish(t.Context(), b.tenant.ID, acme.ID, begun.PassID, ledger.Answer{Excluded: []billing.Exclusion{final, unmapped}}, b.now())
	require.NoError(t, err)
	require.ElementsMatch(t, []client.ExcludedMeter{
		{MeterId: final.MeterID.String(), MeterSlug: "calls", Reason: "invoice_final", Message: final.Text().Message, NextStep: final.Text().NextStep},
		{MeterId: unmapped.MeterID.String(), MeterSlug: "images", Reason: "no_target", Message: noItem, NextStep: unmapped.Text().NextStep},
	}, b.readSync(t, run).Excluded)
}
