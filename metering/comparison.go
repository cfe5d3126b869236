package metering

// Comparison compares the usage of a month with the previous month.
type Comparison struct {
	Current, Previous, Delta Decimal
	PercentChange            Decimal // of Previous, two decimals; ±100 with the sign of Delta if only Previous is zero, 0 if both are
}

// Compare returns the comparison of two totals.
func Compare(current, previous Decimal) Comparison {
	c := Comparison{Current: current, Previous: previous, Delta: current.Sub(previous)}
	switch {
	case !previous.IsZero():
		c.PercentChange = c.Delta.percentOf(previous)
	case !current.IsZero():
		c.PercentChange = Whole(int64(100 * current.Cmp(Decimal{})))
	}
	return c
}
