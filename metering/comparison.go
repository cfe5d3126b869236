package metering

// Comparison is usage month over month.
type Comparison struct {
	Current, Previous, Delta Decimal
	PercentChange            Decimal // of Previous, two decimals; 0 when both are zero, 100 when only Previous is
}

// Compare fills in the difference of two totals.
func Compare(current, previous Decimal) Comparison {
	c := Comparison{Current: current, Previous: previous, Delta: current.Sub(previous)}
	switch {
	case !previous.IsZero():
		c.PercentChange = c.Delta.percentOf(previous)
	case !current.IsZero():
		c.PercentChange = Whole(100)
	}
	return c
}
