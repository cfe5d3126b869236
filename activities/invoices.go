package activities

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// invoiceReader reads a customer's invoices at the tenant's provider.
type invoiceReader struct {
	*Activities
	openedProvider
	invoices   providers.Invoices // nil: the provider has no invoices
	tenant     metering.TenantID
	customer   metering.CustomerID
	connection metering.ConnectionID
	question   providers.InvoiceQuestion
}

// invoicesOf returns a reader of the customer's invoices at the tenant's current provider.
func (a *Activities) invoicesOf(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (r invoiceReader, err error) {
	wanted, err := a.store.Links.Wanted(ctx, tenant, customer)
	if err != nil {
		return r, err
	}
	r = invoiceReader{Activities: a, tenant: tenant, customer: customer, connection: wanted.Provider.ID}
	if r.openedProvider, err = a.openProvider(tenant, wanted.Provider); err != nil {
		return r, err
	}
	r.invoices, _ = r.Provider.(providers.Invoices)
	r.question = providers.InvoiceQuestion{Meters: wanted.Meters, Mapping: wanted.Provider.Mapping}
	r.question.Destinations, err = a.store.Links.Destinations(ctx, tenant, customer, r.connection)
	return r, err
}

// refreshInvoice reads the current state of an invoice and stores it.
func (r invoiceReader) refreshInvoice(ctx context.Context, id string) (metering.Invoice, error) {
	readAt := r.now()
	r.question.ID = id
	in, err := measureCall(r.metrics, r.Kind, func() (metering.Invoice, error) { return r.invoices.Invoice(ctx, r.credentials, r.question) })
	if err != nil {
		return in, err
	}
	in.Connection = r.connection
	return in, r.store.Invoices.Save(ctx, r.tenant, r.customer, in, readAt)
}

const (
	// listsAtOnce bounds the number of customers for which one run lists invoices. The next run
	// continues.
	listsAtOnce = 200
	// listedEvery is the interval between two lists of one customer's invoices.
	listedEvery = 24 * time.Hour
	// listedAgainAfter is the interval between a failed list and the next attempt.
	listedAgainAfter = time.Hour
)

// ListInvoicesResult counts the work of ListInvoices.
type ListInvoicesResult struct {
	Customers int `json:"customers"`
	Failed    int `json:"failed"` // customers with a list that failed
}

// ListInvoices reads the invoices of customers with an open reconciliation, and then reconciles
// their closed periods. It reads each customer's invoices once a day, even if no event about an
// invoice has arrived. If the list fails for one customer, it continues with the next customer, and
// a later run retries the failed customer. It returns an error if the provider is unavailable for
// two customers in a row, or refuses a call for a reason that affects all customers.
func (a *Activities) ListInvoices(ctx context.Context, in TenantInput) (result ListInvoicesResult, err error) {
	defer sendHeartbeats(ctx)()
	active, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil || !active.Invoices {
		return result, err
	}
	now := a.now()
	due, err := a.store.Invoices.DueLists(ctx, in.TenantID, active.ID, listsAtOnce, now, now.Add(listedAgainAfter))
	if err != nil {
		return result, err
	}
	silent := false
	for few := range slices.Chunk(due, closedAtOnce) {
		var read []metering.CustomerID
		for _, list := range few {
			err := a.listInvoices(ctx, in.TenantID, list)
			if a.affectsAll(ctx, list, err, silent) {
				return result, err
			}
			if silent = metering.CodeOf(err) == metering.CodeProviderDown; err != nil {
				result.Failed++
				continue
			}
			read = append(read, list.Customer)
			result.Customers++
		}
		if len(read) == 0 {
			continue
		}
		if _, err := a.store.Ledger.ClosePeriods(ctx, in.TenantID, read, a.now()); err != nil {
			return result, err
		}
	}
	return result, nil
}

// affectsAll reports whether the failure of a customer's list affects all customers. Such a failure is a refusal that is
// not limited to the customer, or the end of ctx. An unavailable provider counts only if silent is true: the provider
// did not answer for the previous customer either. affectsAll logs any other failure.
func (a *Activities) affectsAll(ctx context.Context, list ledger.InvoiceList, err error, silent bool) (affects bool) {
	if err == nil {
		return false
	}
	switch metering.CodeOf(err) {
	case metering.CodeProviderDown:
		affects = silent
	case metering.CodeProviderRefuse:
		affects = !isOwnRefusal(err)
	default:
		affects = ctx.Err() != nil
	}
	if !affects {
		activity.GetLogger(ctx).Warn("the worker could not list a customer's invoices; it tries again with the next run", "customer", list.Customer.String(), "error", failureText(err))
	}
	return affects
}

// listInvoices reads and stores the customer's invoices at the provider since the start of the
// oldest period with an open reconciliation.
func (a *Activities) listInvoices(ctx context.Context, tenant metering.TenantID, list ledger.InvoiceList) error {
	reader, err := a.invoicesOf(ctx, tenant, list.Customer)
	if err != nil {
		return err
	}
	lists, can := reader.Provider.(providers.InvoiceList)
	if !can {
		return a.store.Invoices.Listed(ctx, tenant, list, a.now().Add(listedEvery))
	}
	readAt := a.now()
	listed, err := measureCall(a.metrics, reader.Kind, func() (providers.ListedInvoices, error) {
		return lists.ListInvoices(ctx, reader.credentials, providers.InvoiceListQuestion{
			Customer: list.AtProvider, Since: list.Since, Destinations: reader.question.Destinations,
		})
	})
	if err != nil {
		return err
	}
	drafts := make(map[string]bool) // by subscription
	for _, id := range listed.Invoices {
		in, err := reader.refreshInvoice(ctx, id)
		if err != nil {
			return err
		}
		drafts[in.Subscription] = drafts[in.Subscription] || in.FinalizedAt.IsZero()
	}
	for _, ended := range listed.Ended {
		if ended.Connection = reader.connection; drafts[ended.ID] {
			continue
		}
		if err := a.store.Invoices.SaveEnded(ctx, tenant, list.Customer, ended, readAt); err != nil {
			return err
		}
	}
	return a.store.Invoices.Listed(ctx, tenant, list, readAt.Add(listedEvery))
}
