package stripe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers/stripe"
)

func TestMatchAssignsMeterToExactlyOneItem(t *testing.T) {
	t.Parallel()
	slug := func(s string) map[string]string { return map[string]string{"meter_slug": s} }
	items := []stripe.Item{
		{ItemID: "si_1", PriceID: "price_1", LookupKey: "calls"},
		{ItemID: "si_2", PriceID: "price_2", PriceMetadata: slug("calls")},
		{ItemID: "si_3", PriceID: "price_3", PriceMetadata: slug("storage")},
		{ItemID: "si_4", PriceID: "price_4", MeterMetadata: slug("seats")},
		{ItemID: "si_5", PriceID: "price_5", PriceMetadata: slug("twice")},
		{ItemID: "si_6", PriceID: "price_6", MeterMetadata: slug("twice")},
		{ItemID: "si_7", PriceID: "price_7"},
		{ItemID: "si_8", PriceID: "price_7"},
	}
	for name, c := range map[string]struct {
		slug    string
		mapping map[string]string
		want    string
		reason  string
	}{
		"lookup key before metadata": {slug: "calls", want: "si_1"},
		"price metadata":             {slug: "storage", want: "si_3"},
		"meter metadata":             {slug: "seats", want: "si_4"},
		"mapping before all":         {slug: "calls", mapping: map[string]string{"calls": "price_3"}, want: "si_3"},
		"another meter's mapping":    {slug: "calls", mapping: map[string]string{"seats": "price_3"}, want: "si_1"},
		"mapped to what is not there": {slug: "calls", mapping: map[string]string{"calls": "price_9"},
			reason: "no subscription item of the customer has the price price_9"},
		"mapped to two items": {slug: "calls", mapping: map[string]string{"calls": "price_7"},
			reason: "several subscription items (si_7, si_8) have the price price_7; set the price of the meter in mapping"},
		"two in metadata": {slug: "twice",
			reason: "several subscription items (si_5, si_6) have a price with lookup key twice, or a price or Stripe meter with metadata meter_slug=twice; set the price of the meter in mapping"},
		"none": {slug: "other",
			reason: "no subscription item of the customer has a price with lookup key other, or a price or Stripe meter with metadata meter_slug=other"},
	} {
		got, reason := stripe.Match(items, c.slug, c.mapping)
		require.Equal(t, c.reason, reason, name)
		require.Equal(t, c.want, got.ItemID, name)
	}
	_, reason := stripe.Match(nil, "calls", nil)
	require.Equal(t, "the customer has no active subscription at Stripe", reason)
}
