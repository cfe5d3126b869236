package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Message is a report with the context that a provider needs to encode the report.
type Message struct {
	Report
	ID                 uuid.UUID
	TenantID           metering.TenantID
	CustomerID         metering.CustomerID
	CustomerExternalID string
	Stream             int              // number of the billing schedule that the report is about
	Sequence           int64            // number of the report; it rises with each report of the customer
	Epoch              int64            // time of the ledger's last restore, in seconds since 1970; 0: never restored
	Periods            []metering.Range // stored periods of the billing schedule, to which lines of late usage refer
	Meter              metering.Meter   // meter of a quantity or charge; zero in other reports
	Timezone           *time.Location
	Now                time.Time
}

// PeriodFrom returns the period of m.Periods that begins at start. It panics if there is none.
func (m Message) PeriodFrom(start time.Time) metering.Range {
	i := slices.IndexFunc(m.Periods, func(r metering.Range) bool { return r.Start.Equal(start) })
	return m.Periods[i]
}

// Framed is a report as it is encoded for the provider. Odometer stores it before the first attempt to send it, and
// never changes it.
type Framed struct {
	Body      []byte    // JSON
	Timestamp time.Time // timestamp of the report at the provider; zero: none
}
