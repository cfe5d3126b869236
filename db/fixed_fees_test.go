package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// feeForEachEvent returns a price with a fixed fee, which a provider that bills quantities cannot
// charge.
func feeForEachEvent(meter metering.MeterID) billing.Price {
	return billing.Price{MeterID: meter, Terms: billing.Terms{
		Model: billing.ModelPercentage, Percent: metering.Whole(1), FixedFee: metering.MustDecimal("0.3"), Currency: "USD",
	}}
}

func saveQuantities(t *testing.T, store *db.DB, tenant metering.TenantID) error {
	t.Helper()
	_, err := store.Providers.Save(t.Context(), tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: "acct_1", Bills: metering.BillsQuantities, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: november,
	})
	return err
}

func TestConcurrentFixedFeeAndQuantityProviderAreNotBothSaved(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	for range 10 {
		tenant := dbtest.Tenant(t, store).ID
		m := dbtest.Meter(t, store, tenant, "calls", "call")
		var failures [2]error
		require.NoError(t, atOnce(2, func(i int) error {
			if i == 0 {
				_, failures[0] = store.Prices.Set(t.Context(), tenant, metering.Operator, feeForEachEvent(m.ID))
			} else {
				failures[1] = saveQuantities(t, store, tenant)
			}
			return nil
		}))
		if failures[0] == nil {
			require.Equal(t, metering.CodeConflict, metering.CodeOf(failures[1]), "%v", failures[1])
		} else {
			require.Equal(t, metering.CodeInvalid, metering.CodeOf(failures[0]), "%v", failures[0])
			require.NoError(t, failures[1])
		}
	}
}

func TestSetRefusesFixedFeeWhileProviderBillsQuantities(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	m := dbtest.Meter(t, store, tenant, "calls", "call")
	require.NoError(t, saveQuantities(t, store, tenant))
	_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, feeForEachEvent(m.ID))
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.ErrorContains(t, err, "must be 0 while the billing provider bills quantities")
}

// TestQuantityProviderIsRefusedIfFixedFeeChargesOpenPeriod replaces a price with a fixed fee in the middle of a
// period. The price at the start still charges the period, so a new provider that bills quantities is refused.
func TestQuantityProviderIsRefusedIfFixedFeeChargesOpenPeriod(t *testing.T) {
	t.Parallel()
	b, month := newOldBiller(t)
	b.exec(`delete from meter_prices where tenant_id = $1`, b.tenant)
	plain := billing.Price{MeterID: b.meter.ID, Terms: billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}}
	set := func(p billing.Price, from time.Time) {
		p.EffectiveFrom = from
		dbtest.Price(t, b.store, b.tenant, p)
	}
	save := func(account string, bills metering.Bills) error {
		_, err := b.store.Providers.Save(t.Context(), b.tenant, metering.Operator, metering.Provider{
			Kind: metering.Stripe, Invoices: true, Account: account, Bills: bills, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
		})
		return err
	}
	set(feeForEachEvent(b.meter.ID), month.Start.AddDate(0, -3, 0))
	set(plain, month.Start.AddDate(0, 0, 10))
	b.use("10")
	require.True(t, b.now.After(month.Start.AddDate(0, 0, 10)))
	err := save("acct_1", metering.BillsQuantities)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "cannot charge: "+b.meter.Slug+"; save the provider with bills set to amounts, or set other prices with an effective_from of at most ")

	require.NoError(t, save("acct_2", metering.BillsAmounts))
	b.now = b.now.Add(time.Minute)
	require.NoError(t, save("acct_2", metering.BillsQuantities), "the begun period stays billed in amounts")

	set(plain, month.Start.AddDate(0, -2, 0))
	require.NoError(t, save("acct_1", metering.BillsQuantities), "no period is charged by the fee")
}
