package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// Archivable is the query parameter of lists that can include archived items.
type Archivable struct {
	Archived bool `query:"archived" default:"false" doc:"Whether archived items are included"`
}

// utcOrNil returns the time in UTC, or nil for the zero time.
func utcOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return new(at.UTC())
}

func (s *server) registerArchives() {
	huma.Register(s.api, post("archive-customer", "/v1/customers/{external_id}/archive", CustomersWrite, "Archive a customer",
		"Hides the customer from lists. The customer's usage is still counted and billed, base prices included. The customer's next event unarchives the customer."), s.archiveCustomer(true))
	huma.Register(s.api, post("unarchive-customer", "/v1/customers/{external_id}/unarchive", CustomersWrite, "Unarchive a customer",
		"Shows the customer in lists again. Repeating the request changes nothing. Returns 409 if the customer is erased."), s.archiveCustomer(false))
	huma.Register(s.api, heavy(post("archive-meter", "/v1/meters/{slug}/archive", MetersWrite, "Archive a meter",
		"Hides the meter from lists. The meter stops counting new events.\n\n"+
			"- Usage that the meter has counted is kept and billed. A base price is still charged.\n"+
			"- A running backfill stops. If the backfill is of a changed definition, the change is canceled: the meter keeps the definition in `current`. If the backfill is the meter's first one, the meter has no usage.\n\n"+
			howToConfirm)), s.archiveMeter)
	huma.Register(s.api, heavy(post("unarchive-meter", "/v1/meters/{slug}/unarchive", MetersWrite, "Unarchive a meter",
		"The meter counts events again, including events that arrived while the meter was archived. The usage of such an event is not billed if its billing period closed after the event arrived. Until these events are counted, `status` is `backfilling`.\n\n"+
			howToConfirm)), s.unarchiveMeter)
	huma.Register(s.api, post("archive-plan", "/v1/plans/{slug}/archive", PricingWrite, "Archive a plan",
		"Hides the plan from lists. Customers who have the plan keep it. The plan cannot be assigned to other customers."), s.archivePlan(true))
	huma.Register(s.api, post("unarchive-plan", "/v1/plans/{slug}/unarchive", PricingWrite, "Unarchive a plan",
		"The plan can be assigned again. Repeating the request changes nothing."), s.archivePlan(false))
}

// archivedFrom returns the value of ArchivedAt to store: now if archive is true, otherwise the zero time.
func (s *server) archivedFrom(archive bool) time.Time {
	if archive {
		return s.Now()
	}
	return time.Time{}
}

// archiveCustomer returns the handler that archives a customer, or unarchives it if archive is false.
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

// archivePlan returns the handler that archives a plan, or unarchives it if archive is false.
func (s *server) archivePlan(archive bool) func(context.Context, *planSlug) (*planOutput, error) {
	return func(ctx context.Context, in *planSlug) (*planOutput, error) {
		who := principalOf(ctx)
		p, err := s.plan(ctx, in.Slug)
		if err != nil {
			return nil, err
		}
		if err := s.Store.Plans.Archive(ctx, who.Tenant.ID, who.Actor, p, s.archivedFrom(archive)); err != nil {
			return nil, err
		}
		return s.getPlan(ctx, in)
	}
}

type archiveMeterInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body *Confirm
}

func (s *server) archiveMeter(ctx context.Context, in *archiveMeterInput) (*meterOutput, error) {
	who := principalOf(ctx)
	return s.setMeterArchived(ctx, in, true, func(within db.Catalog, slug string) error {
		return within.Meters.Archive(ctx, who.Tenant.ID, who.Actor, slug, s.Now())
	})
}

func (s *server) unarchiveMeter(ctx context.Context, in *archiveMeterInput) (*meterOutput, error) {
	who := principalOf(ctx)
	var backfilling *metering.MeterVersion
	shown, err := s.setMeterArchived(ctx, in, false, func(within db.Catalog, slug string) (err error) {
		backfilling, err = within.Meters.Unarchive(ctx, who.Tenant.ID, who.Actor, slug)
		return err
	})
	if err == nil && backfilling != nil {
		s.startBackfill(ctx, backfilling.ID)
	}
	return shown, err
}

// setMeterArchived archives or unarchives a meter. The request must be confirmed if it changes the charges of
// begun billing periods.
func (s *server) setMeterArchived(ctx context.Context, in *archiveMeterInput, archive bool, write func(within db.Catalog, slug string) error) (*meterOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	w := catalogWrite{
		change: meterWrite{"archive-meter", m.ID}, subject: "Archiving the meter",
		impact: func(now time.Time) (ledger.Impact, error) {
			return s.Store.Ledger.ArchiveImpact(ctx, principalOf(ctx).Tenant.ID, m.Slug, archive, now)
		},
		write: func(within db.Catalog) error { return write(within, m.Slug) },
	}
	if !archive {
		w.change, w.subject = meterWrite{"unarchive-meter", m.ID}, "Unarchiving the meter"
	}
	if in.Body != nil {
		w.confirm = in.Body.Token
	}
	if err := s.writeCatalog(ctx, w); err != nil {
		return nil, err
	}
	return s.getMeter(ctx, &meterSlug{m.Slug})
}
