package workflows

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// EraseCustomerInput names the customer, which no longer has its external id.
type EraseCustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// EraseCustomer erases a customer's personal data from the database, step by step. Each step may be
// repeated. Totals, bills and reports stay. The keys of groups are replaced before events are
// erased, because the new keys determine which property values an event keeps.
func EraseCustomer(ctx workflow.Context, in EraseCustomerInput) error {
	customer := activities.CustomerInput{TenantID: in.TenantID, CustomerID: in.CustomerID}
	var found activities.EraseGroupsResult
	show := func(state string) {
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("Customer: %s. %s", customerLink(in.CustomerID, found.Page), state))
	}
	for _, step := range []struct {
		summary  string
		activity any
		result   any
	}{
		{"replace the customer's group keys", do.EraseGroups, &found},
		{"erase the content of the customer's events", do.EraseEvents, nil},
		{"erase the customer's name from reports and messages", do.EraseMessages, nil},
		{"record that the erasure is complete", do.FinishErasure, nil},
	} {
		show("Next: " + step.summary)
		if err := workflow.ExecuteActivity(heavyStep(ctx, step.summary), step.activity, customer).Get(ctx, step.result); err != nil {
			return asRunFailure(err)
		}
	}
	show("The customer is erased.")
	return nil
}

// EraseCustomerID returns the workflow ID of a customer's erasure.
func EraseCustomerID(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("erase-customer/%d/%d", tenant, customer)
}

// eraseCustomerStart returns the start of a customer's erasure.
func eraseCustomerStart(tenant metering.TenantID, customer metering.CustomerID) start {
	return start{
		workflow:   EraseCustomer,
		input:      EraseCustomerInput{TenantID: tenant, CustomerID: customer},
		id:         EraseCustomerID(tenant, customer),
		summary:    fmt.Sprintf("Erase the personal data of %s", customer),
		details:    fmt.Sprintf("Erases the personal data of %s of %s from the database; totals, bills and reports stay. If the run ends early, the worker starts another one. %s", customer, tenant, customerRequestText(customer)),
		tenant:     tenant,
		attributes: []temporal.SearchAttributeUpdate{customerAttribute.ValueSet(customer.String())},
		priority:   background,
	}
}

// StartEraseCustomer starts a run that erases the customer, unless one is open. The caller commits
// the erasure's row first.
func StartEraseCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	return eraseCustomerStart(tenant, customer).startOrJoin(ctx, c)
}
