package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Archivable is in the query of lists of what can be archived.
type Archivable struct {
	Archived bool `query:"archived" default:"false" doc:"Whether archived ones are listed too"`
}

// sinceWhen is an instant that may not have been.
func sinceWhen(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC())
}

func (s *server) archives() {
	huma.Register(s.api, post("archive-customer", "/v1/customers/{external_id}/archive", CustomersWrite, "Archive a customer",
		"Lists leave it out. What it uses is counted and billed as ever, and its next event has it back."), s.archiveCustomer(true))
	huma.Register(s.api, post("unarchive-customer", "/v1/customers/{external_id}/unarchive", CustomersWrite, "Unarchive a customer",
		"It is in lists again. Doing so again changes nothing."), s.archiveCustomer(false))
	huma.Register(s.api, post("archive-meter", "/v1/meters/{slug}/archive", MetersWrite, "Archive a meter",
		"Lists leave it out, and it counts no event that comes from then on. What it has counted stays, and is billed. 409 while its past is being counted."), s.archiveMeter)
	huma.Register(s.api, post("unarchive-meter", "/v1/meters/{slug}/unarchive", MetersWrite, "Unarchive a meter",
		"It counts again, what came meanwhile too: its status is backfilling until that is done."), s.unarchiveMeter)
	huma.Register(s.api, post("archive-product", "/v1/products/{slug}/archive", PricingWrite, "Archive a plan",
		"Lists leave it out. Who has it keeps it; nobody gets it anew."), s.archiveProduct(true))
	huma.Register(s.api, post("unarchive-product", "/v1/products/{slug}/unarchive", PricingWrite, "Unarchive a plan",
		"It can be assigned again. Doing so again changes nothing."), s.archiveProduct(false))
}

// archivedFrom is when something is archived: now, or never.
func (s *server) archivedFrom(archive bool) time.Time {
	if archive {
		return s.Now()
	}
	return time.Time{}
}

func (s *server) archiveCustomer(archive bool) func(context.Context, *CustomerPath) (*customerOutput, error) {
	return func(ctx context.Context, in *CustomerPath) (*customerOutput, error) {
		who := principalOf(ctx)
		c, err := s.customerAt(ctx, *in)
		if err != nil {
			return nil, err
		}
		c, err = s.Store.Customers.Archive(ctx, who.Tenant.ID, who.Actor, c.ExternalID, s.archivedFrom(archive))
		if err != nil {
			return nil, err
		}
		return &customerOutput{http.StatusOK, showCustomer(c)}, nil
	}
}

func (s *server) archiveProduct(archive bool) func(context.Context, *productSlug) (*productOutput, error) {
	return func(ctx context.Context, in *productSlug) (*productOutput, error) {
		who := principalOf(ctx)
		p, err := s.product(ctx, in.Slug)
		if err != nil {
			return nil, err
		}
		if err := s.Store.Products.Archive(ctx, who.Tenant.ID, who.Actor, p, s.archivedFrom(archive)); err != nil {
			return nil, err
		}
		return s.getProduct(ctx, in)
	}
}

func (s *server) archiveMeter(ctx context.Context, in *meterSlug) (*meterOutput, error) {
	who := principalOf(ctx)
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Meters.Archive(ctx, who.Tenant.ID, who.Actor, m.Slug, s.Now()); err != nil {
		return nil, err
	}
	return s.getMeter(ctx, in)
}

func (s *server) unarchiveMeter(ctx context.Context, in *meterSlug) (*meterOutput, error) {
	who := principalOf(ctx)
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	backfilling, err := s.Store.Meters.Unarchive(ctx, who.Tenant.ID, who.Actor, m.Slug)
	if err != nil {
		return nil, err
	}
	if backfilling != nil {
		s.startBackfill(ctx, backfilling.ID)
	}
	return s.getMeter(ctx, in)
}
