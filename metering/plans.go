package metering

import "time"

// Plan is an entry of the tenant's catalog: its prices hold for the
// customers who have it, instead of the meters' own.
type Plan struct {
	ID         PlanID
	Slug       string
	Name       string
	CreatedAt  time.Time
	ArchivedAt time.Time // zero: it is not archived
}

// Validate checks what a client may choose.
func (p Plan) Validate() error {
	if err := validSlug(p.Slug); err != nil {
		return err
	}
	return ValidName(p.Name)
}
