package billing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestChargeCanPeakAtTheEndsOfTiers computes the quantities at which a volume charge can be highest. A tier begins after
// the included units and, for a price by dimension, after the units of the prices before it.
func TestChargeCanPeakAtTheEndsOfTiers(t *testing.T) {
	t.Parallel()
	tiers := []Tier{{UpTo: new(metering.Whole(5))}, {UpTo: new(metering.Whole(25))}, {}}
	volume := Terms{Currency: "USD", Model: ModelVolume, IncludedUnits: metering.Whole(10), Tiers: tiers}
	require.Equal(t, []string{"0", "40", "15", "35"}, decimals(volume.peaks(unitsAlone(metering.Whole(40)), metering.Decimal{}, metering.Whole(40))))

	volume.IncludedUnits = metering.Decimal{}
	byModel := Terms{Currency: "USD", Dimensions: &Dimensions{By: []string{"model"}, Prices: []DimensionPrice{
		{Match: map[string][]metering.Scalar{"model": {metering.ParseScalar([]byte(`"large"`))}}, Rate: RateOf(volume)},
		{Match: map[string][]metering.Scalar{"model": {metering.ParseScalar([]byte(`"small"`))}}, Rate: RateOf(volume)},
	}}}
	used := Measured{Units: metering.Whole(50), Dimensions: []DimensionUsage{
		{Key: []byte(`{"model":"large"}`), Units: metering.Whole(20), Events: 1},
		{Key: []byte(`{"model":"small"}`), Units: metering.Whole(30), Events: 1},
	}}
	require.Equal(t, []string{"0", "50", "5", "25", "25", "45"}, decimals(byModel.peaks(used, metering.Decimal{}, metering.Whole(50))))
}

func decimals(all []metering.Decimal) (texts []string) {
	for _, d := range all {
		texts = append(texts, d.String())
	}
	return texts
}
