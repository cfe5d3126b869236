package metering

import (
	"encoding/json"
	"time"
)

// Bounds of a tenant's prices.
const (
	MaxPlans  = 1_000  // archived ones included
	MaxPrices = 20_000 // versions, of all meters and plans, that are not withdrawn
)

// Plan is an entry of the tenant's catalog: its prices hold for the
// customers who have it, instead of the meters' own.
type Plan struct {
	ID         PlanID
	Slug       string
	Name       string
	CreatedAt  time.Time
	ArchivedAt time.Time       // zero: it is not archived
	Features   json.RawMessage // object of key to string, number or boolean, which only clients interpret
}

// Validate checks what a client may choose.
func (p Plan) Validate() error {
	if err := validSlug(p.Slug); err != nil {
		return err
	}
	return ValidName(p.Name)
}
