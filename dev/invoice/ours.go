package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/expect"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/workflows"
)

// tenant is a tenant of Odometer with its account at Stripe and its operators.
type tenant struct {
	id        string
	api       *client.ClientWithResponses
	account   stripetest.Account
	customers []customer
	delivered map[string]bool // ids of Stripe events that Odometer has answered
	operators []*operator
}

// operator is a member that decides on discrepancies.
type operator struct {
	id, name string
	api      *client.ClientWithResponses
}

const password = "correct horse battery staple"

// newTenant creates a tenant that bills all of its meters at a price of 2 cents.
func (d *drill) newTenant(mode string, customers []customer) *tenant {
	d.Helper()
	id, key := d.system.Tenant(d)
	t := &tenant{id: id, api: proc.Dial(d, d.api.URL, key), customers: customers, delivered: make(map[string]bool)}
	d.createAccount(t, mode)
	for _, slug := range meters {
		made, err := t.api.CreateMeterWithResponse(d.Context(), nil, client.CreateMeter{Slug: slug, EventType: slug})
		require.NoError(d, expect.Status("create meter", made, err, http.StatusCreated))
		rate := json.Number("0.02")
		priced, err := t.api.SetPricingWithResponse(d.Context(), slug, client.SetPricing{OverageRate: &rate})
		require.NoError(d, expect.Status("set pricing", priced, err, http.StatusOK))
	}
	for _, c := range customers {
		atStripe := c.atStripe()
		made, err := t.api.CreateCustomerWithResponse(d.Context(), nil, client.CreateCustomer{ExternalId: c.id, Name: &c.kind, BillingProviderId: &atStripe})
		require.NoError(d, expect.Status("create customer", made, err, http.StatusCreated))
	}
	d.connectStripe(t)
	hook, err := t.api.CreateWebhookWithResponse(d.Context(), nil, client.CreateWebhook{
		Url: d.hooksURL, EventTypes: []client.CreateWebhookEventTypes{client.CreateWebhookEventTypesDiscrepancyDetected},
	})
	require.NoError(d, expect.Status("create webhook", hook, err, http.StatusCreated))
	never := client.SaveAutoSync{Enabled: true, Schedule: "0 0 29 2 *"} // 29 February: the drill triggers each run
	saved, err := t.api.SaveAutoSyncWithResponse(d.Context(), never)
	require.NoError(d, expect.Status("save Auto-Sync", saved, err, http.StatusOK))
	return t
}

// connectStripe connects the tenant to its account at Stripe.
func (d *drill) connectStripe(t *tenant) {
	d.Helper()
	in := client.SaveProvider{Type: client.SaveProviderTypeStripe, SecretKey: &t.account.Key, WebhookSecret: &t.account.WebhookSecret}
	if t.customers[0].oneOf(inAmounts...) {
		bills, names := client.SaveProviderBillsAmounts, product
		in.Bills, in.Product = &bills, &names
	}
	saved, err := t.api.SaveBillingProviderWithResponse(d.Context(), in)
	require.NoError(d, expect.Status("save provider", saved, err, http.StatusOK))
}

// hire adds a member with the role billing, and signs it in.
func (d *drill) hire(t *tenant, name string) {
	d.Helper()
	email := strings.ToLower(strings.ReplaceAll(name, " ", ".")) + "@example.com"
	made, err := t.api.CreateMemberWithResponse(d.Context(), nil, client.CreateMember{Email: email, Name: &name, Role: client.CreateMemberRoleBilling})
	require.NoError(d, expect.Status("invite member", made, err, http.StatusCreated))
	in, err := t.api.AcceptInvitationWithResponse(d.Context(), client.AcceptInvitation{Token: made.JSON201.Token, Password: password})
	require.NoError(d, expect.Status("accept invitation", in, err, http.StatusOK))
	t.operators = append(t.operators, &operator{in.JSON200.Member.Id, name, proc.Dial(d, d.api.URL, *in.JSON200.Token)})
}

// use sends one event for each meter of the customers, with the current time.
func (d *drill) use(t *tenant, value string, of ...customer) {
	d.Helper()
	d.useAt(t, d.clock.Now(), value, of...)
}

// useAt is use with events of another time.
func (d *drill) useAt(t *tenant, at time.Time, value string, of ...customer) {
	d.Helper()
	var events []client.Event
	number := json.Number(value)
	for _, c := range of {
		for _, slug := range c.meters() {
			d.sent++
			key := "drill/" + strconv.Itoa(d.sent)
			events = append(events, client.Event{CustomerId: c.id, EventType: slug, Value: &number, Timestamp: &at, IdempotencyKey: &key})
		}
	}
	answer, err := t.api.IngestEventsWithResponse(d.Context(), client.EventBatch{Events: events})
	require.NoError(d, expect.Status("send usage", answer, err, http.StatusOK))
	require.EqualValues(d, len(events), answer.JSON200.Accepted)
}

// autoSync runs the schedule of every tenant, which also closes the periods that are due, and waits for the
// syncs and Stripe events that result.
func (d *drill) autoSync() {
	d.Helper()
	var runs []string
	for _, t := range d.tenants() {
		runs = append(runs, d.trigger(t))
	}
	for _, run := range runs {
		require.NoError(d, d.temporal.GetWorkflow(d.Context(), run, "").Get(d.Context(), nil))
	}
	d.await()
}

// trigger runs a tenant's schedule and returns the workflow id of the run.
func (d *drill) trigger(t *tenant) (run string) {
	d.Helper()
	last := func() client.AutoSyncRun {
		found, err := t.api.GetAutoSyncWithResponse(d.Context())
		require.NoError(d, expect.Status("read Auto-Sync", found, err, http.StatusOK))
		if len(found.JSON200.LastRuns) == 0 {
			return client.AutoSyncRun{}
		}
		return found.JSON200.LastRuns[0]
	}
	before := last()
	dbtest.Eventually(d, func() error {
		if time.Now().Unix() == before.StartedAt.Unix() {
			return errors.New("a schedule names its runs by the second: two within one would be one")
		}
		return nil
	})
	begun, err := t.api.TriggerAutoSyncWithResponse(d.Context())
	require.NoError(d, expect.Status("begin Auto-Sync", begun, err, http.StatusAccepted))
	dbtest.Eventually(d, func() error {
		if run = last().WorkflowId; run == "" || run == before.WorkflowId { // empty before the first run, and while Temporal does not answer
			return errors.New("no run has begun")
		}
		return nil
	})
	return run
}

// close closes every billing period that is due.
func (d *drill) close() {
	d.Helper()
	for _, t := range d.tenants() {
		id, ok := metering.ParseTenantID(t.id)
		require.True(d, ok)
		require.NoError(d, workflows.StartClosePeriod(d.Context(), d.temporal, id))
		require.NoError(d, d.temporal.GetWorkflow(d.Context(), workflows.ClosePeriodID(id), "").Get(d.Context(), nil))
	}
	d.await()
}

// awaitDiscrepancyMessages waits until the webhook receiver has a discrepancy message for the customer of each disputed
// row.
func (d *drill) awaitDiscrepancyMessages(rows []row) {
	d.Helper()
	for _, r := range rows {
		if r.State != client.ReconciliationStateDisputed {
			continue
		}
		dbtest.Eventually(d, func() error {
			got, err := receiver.Received(d.Context(), d.hooksURL)
			if err != nil {
				return err
			}
			about := func(m receiver.Delivery) bool {
				return strings.Contains(m.Body, string(client.CreateWebhookEventTypesDiscrepancyDetected)) && strings.Contains(m.Body, strconv.Quote(r.customer.id))
			}
			if !slices.ContainsFunc(got, about) {
				return fmt.Errorf("no webhook was told of %s", r.customer.kind)
			}
			return nil
		})
		d.Printf("   discrepancy.detected has told of %s.", r.customer.kind)
	}
}

// reconciliations returns all reconciliations of the tenant, the newest period first.
func (d *drill) reconciliations(t *tenant) (all []client.Reconciliation) {
	d.Helper()
	size := int64(1000)
	listed, err := t.api.ListReconciliationsWithResponse(d.Context(), &client.ListReconciliationsParams{PageSize: &size})
	require.NoError(d, expect.Status("list reconciliations", listed, err, http.StatusOK))
	require.False(d, listed.JSON200.HasMore)
	return listed.JSON200.Data
}

// decide applies an operator's decision to a discrepancy over the API. The verdict is waive, rebill or write off.
func (d *drill) decide(by *operator, r client.Reconciliation, verdict, reason string) {
	d.Helper()
	ctx := d.Context()
	var answer expect.Answer
	var err error
	switch verdict {
	case "waive":
		answer, err = by.api.WaiveReconciliationWithResponse(ctx, r.Period.Id, r.MeterSlug, client.WaiveReconciliationJSONRequestBody{Reason: reason})
	case "rebill":
		answer, err = by.api.RebillReconciliationWithResponse(ctx, r.Period.Id, r.MeterSlug, client.RebillReconciliationJSONRequestBody{Reason: reason})
	case "write off":
		answer, err = by.api.WriteOffReconciliationWithResponse(ctx, r.Period.Id, r.MeterSlug, client.WriteOffReconciliationJSONRequestBody{Reason: reason})
	default:
		err = fmt.Errorf("nobody knows how to %s", verdict)
	}
	require.NoError(d, expect.Status(verdict, answer, err, http.StatusOK))
}

// lateUsage returns the sum of the usage that arrived after the close of the customer's periods.
func (d *drill) lateUsage(t *tenant, c customer) (sum metering.Decimal) {
	d.Helper()
	listed, err := t.api.ListBillingPeriodsWithResponse(d.Context(), &client.ListBillingPeriodsParams{Customer: c.id})
	require.NoError(d, expect.Status("list periods", listed, err, http.StatusOK))
	for _, p := range listed.JSON200.Data {
		for _, l := range p.Lines {
			if p.ClosedAt != nil {
				sum = sum.Add(d.decimal(l.LateUsage))
			}
		}
	}
	return sum
}

// decimal parses a number of the API.
func (d *drill) decimal(n json.Number) metering.Decimal {
	d.Helper()
	value, err := metering.ParseDecimal(n.String())
	require.NoError(d, err)
	return value
}
