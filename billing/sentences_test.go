package billing_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
)

func TestEachBreakdownStepHasUniqueSentence(t *testing.T) {
	t.Parallel()
	first := map[string]string{}
	for _, name := range billing.StepNames() {
		sentence := billing.Step{Name: name, Unit: "USD", Digits: new(int32), Reason: billing.ReasonLate}.Sentence()
		require.Regexp(t, `^[A-Z].+\.$`, sentence)
		require.Empty(t, first[sentence], "%s is said of it too", name)
		first[sentence] = name
	}
}

func TestSentenceDescribesBreakdownStep(t *testing.T) {
	t.Parallel()
	digits, closed := []int32{0, 1, 6}, january
	for want, step := range map[string]billing.Step{
		"The meter's usage in the period, from 1 event.":                                    {Name: billing.StepUsage, Events: 1},
		"The meter's usage when the period was closed, from 0 events.":                      {Name: billing.StepUsage, Closed: &closed},
		"The usage rounded half to even to whole units: the provider accepts no decimals.":  {Name: billing.StepUnits, Digits: &digits[0]},
		"The usage rounded half to even to 1 decimal, the most that the provider accepts.":  {Name: billing.StepUnits, Digits: &digits[1]},
		"The usage rounded half to even to 6 decimals, the most that the provider accepts.": {Name: billing.StepUnits, Digits: &digits[2]},
		"A fixed amount of the provider's price.":                                           {Name: billing.StepPriceLine},
		"The priced units times the price rate, rounded as the provider rounds each line.":  {Name: billing.StepPriceLine, Of: make([]billing.Step, 2)},
		"The included units, which are not charged.":                                        {Name: billing.StepIncluded},
		"The units above the included units, never below zero.":                             {Name: billing.StepOverage},
		"The exact charge rounded half to even to the minor unit of CHF.":                   {Name: billing.StepCharge, Unit: "CHF"},
		"Plus the change in a closed period's amount because of late usage.":                {Name: billing.StepAdjustment, Reason: billing.ReasonLate},
	} {
		require.Equal(t, want, step.Sentence())
	}
}

func TestCountedReportsStepsComputedFromEvents(t *testing.T) {
	t.Parallel()
	for _, name := range billing.StepNames() {
		counted := slices.Contains([]string{
			billing.StepUsage, billing.StepLate, billing.StepTotal, billing.StepFixedFees, billing.StepRateUnits, billing.StepDimension, billing.StepUnrated,
		}, name)
		require.Equal(t, counted, billing.Step{Name: name}.Counted(), name)
	}
}
