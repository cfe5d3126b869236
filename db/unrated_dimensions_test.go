package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
)

// unpriced lists the unrated usage since an instant as text.
func (b *tokenBiller) unpriced(since time.Time) (lines []string) {
	b.Helper()
	for _, l := range b.unrated(since) {
		estimate := "none"
		if l.Estimate != nil {
			estimate = l.Estimate.String() + " " + l.Currency
		}
		lines = append(lines, fmt.Sprint(l.ExternalID, " ", l.MeterSlug, " ", l.Reason, " ", l.State, ": ", l.Usage, " of ", l.Events, ", ", estimate))
	}
	return lines
}

func TestUsageThatNoPriceByDimensionChargesIsUnrated(t *testing.T) {
	t.Parallel()
	b, month := newPricedThree(t)
	b.send(0, metering.Range{Start: b.now, End: month.End}) // only an event of 5 tokens in $other
	const plain, acme = "plain tokens unpriced_dimension open: 20 of 1, none", "acme tokens unpriced_dimension open: 5 of 1, none"
	require.Equal(t, []string{acme, plain}, b.unpriced(month.Start), "the plan's price has a default, and acme's own matches all regions")

	b.exec(`update billing_connections set retired_at = validated_at where tenant_id = $1`, b.tenant)
	all := b.unpriced(month.Start)
	require.Contains(t, all, plain)
	require.Contains(t, all, "plain tokens no_provider open: 170 of 3, 1.64 USD")
	b.useProvider("https://other.example.com/usage")

	within := b.now
	b.now = over(month)
	require.Contains(t, b.unpriced(month.Start), "plain tokens unpriced_dimension in_grace: 20 of 1, none")
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	require.Contains(t, b.unpriced(month.Start), "acme tokens unpriced_dimension closed: 5 of 1, none")
	b.sendToken("acme", "small", "asia", "7", within)
	b.acceptAll()
	require.Contains(t, b.unpriced(month.Start), "acme tokens unpriced_dimension closed: 12 of 2, none", "booked late usage is unrated too")
	require.False(t, slices.ContainsFunc(b.unpriced(month.End), func(line string) bool { return line == "acme tokens unpriced_dimension closed: 12 of 2, none" }))
}

func TestDimensionTermsAreThoseThatChargeTheCustomer(t *testing.T) {
	t.Parallel()
	b, month := newPricedThree(t)
	read := func(customer string) (by []string) {
		terms, err := b.store.Unrated.DimensionTerms(t.Context(), b.tenant, []string{customer}, b.now)
		require.NoError(t, err)
		require.Contains(t, terms, customer)
		for _, of := range terms[customer] {
			require.Equal(t, b.tokens.ID, of.MeterID)
			require.True(t, of.Period.Contains(b.now))
			by = append(by, of.Terms.String())
		}
		return by
	}
	for customer, of := range map[string]billing.Terms{"acme": byRegion(), "plain": byModel()} {
		require.Len(t, read(customer), 1)
		require.Contains(t, read(customer)[0], of.Dimensions.By[0])
	}
	b.setPrice(billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}, month.End, catalog.PriceOwner{Customer: b.customer.ID})
	within := b.now
	b.now = over(month)
	b.acceptAll()
	require.Equal(t, 1, b.closePeriods().Closed)
	b.setPrice(billing.Terms{OverageRate: metering.Whole(1), Currency: "USD"}, month.Start, catalog.PriceOwner{Customer: b.customer.ID})
	later := b.now
	b.now = within
	require.Len(t, read("acme"), 1, "late usage of the closed period is charged at the withdrawn price by dimension")
	require.Contains(t, read("acme")[0], "region")
	b.now = later

	meters, err := b.store.Prices.DimensionMeters(t.Context(), b.tenant)
	require.NoError(t, err)
	require.Len(t, meters, 1)
	require.Equal(t, b.tokens.ID, meters[0].ID)
	require.Len(t, meters[0].Terms, 3, "the withdrawn price of acme has charged a closed period")
}
