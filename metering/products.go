package metering

import "time"

// Product is an entry of the tenant's catalog: its prices hold for the
// customers who have it, instead of the meters' own.
type Product struct {
	ID        ProductID
	Slug      string
	Name      string
	CreatedAt time.Time
}

// Validate checks what a client may choose.
func (p Product) Validate() error {
	if err := validSlug(p.Slug); err != nil {
		return err
	}
	return validName(p.Name)
}

// Assignment says which product a customer has from an instant on. Of two with
// the same instant the later in a list holds.
type Assignment struct {
	ProductID     ProductID // 0: none
	EffectiveFrom time.Time
}

// ProductAt returns the product that the customer has at t, or 0.
func ProductAt(assignments []Assignment, t time.Time) ProductID {
	var in Assignment
	for _, a := range assignments {
		if !a.EffectiveFrom.After(t) && !a.EffectiveFrom.Before(in.EffectiveFrom) {
			in = a
		}
	}
	return in.ProductID
}
