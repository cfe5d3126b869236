package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// feeForEachEvent is a price that a provider of quantities cannot charge.
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

func TestAFixedFeeAndAProviderOfQuantitiesAreNeverSavedAtTheSameTime(t *testing.T) {
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

func TestASetPriceRefusesAFixedFeeOfItself(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	m := dbtest.Meter(t, store, tenant, "calls", "call")
	require.NoError(t, saveQuantities(t, store, tenant))
	_, err := store.Prices.Set(t.Context(), tenant, metering.Operator, feeForEachEvent(m.ID))
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.ErrorContains(t, err, "must be 0 while the billing provider bills quantities")
}
