package metering

import "time"

// PeriodStatement is a billing period with what it came to so far, or, once it
// is closed, what it came to and what has arrived since.
type PeriodStatement struct {
	Period
	DueAt time.Time // when it is to be closed
	Lines []PeriodLine
}

// PeriodLine is one meter of a period.
type PeriodLine struct {
	MeterID    MeterID
	MeterSlug  string
	Usage      Decimal // of a closed period: what it was closed at
	EventCount int64
	Charge     Decimal // rounded to the currency's minor unit
	Currency   string
	Price      int     // its version; 0: none
	Billed     bool    // the provider was told
	LateUsage  Decimal // what arrived after the closing
	LateCharge Decimal // what the charge would grow by
}

// Caveat goes with every revenue figure.
const Caveat = "Estimates: invoiced amounts may differ because of proration, discounts or credits at the provider."
