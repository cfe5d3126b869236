package metering

// Comparison compares the usage of a month with the previous month.
type Comparison struct {
	Current, Previous, Delta Decimal
	// PercentChange is Delta in percent of Previous, with two decimals. If Previous is zero, it is 100 or -100 with
	// the sign of Current, or 0 if Current is also zero.
	PercentChange Decimal
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
