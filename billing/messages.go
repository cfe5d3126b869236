package billing

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// Message is a report with what its receiver is told besides.
type Message struct {
	Report
	ID                 uuid.UUID
	TenantID           metering.TenantID
	CustomerID         metering.CustomerID
	CustomerExternalID string
	Stream             int              // whose period it is about
	Sequence           int64            // of a statement
	Epoch              int64            // of the ledger
	Periods            []metering.Range // the customer's, which lines of closed ones are about
	Meter              metering.Meter   // of a quantity and a charge
	Timezone           *time.Location
	Now                time.Time
}

// PeriodFrom is the customer's period that begins at start.
func (m Message) PeriodFrom(start time.Time) metering.Range {
	i := slices.IndexFunc(m.Periods, func(r metering.Range) bool { return r.Start.Equal(start) })
	return m.Periods[i]
}

// Framed is what goes out. It is written down before it is sent first, and
// never changes.
type Framed struct {
	Body      []byte    // JSON
	Timestamp time.Time // that the provider is told; zero: none
}
