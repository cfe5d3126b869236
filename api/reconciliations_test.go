package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// reconciled creates a closed period of acme for each reconciliation state, and returns the periods. The oldest
// has the state open. Each period has 10 calls, of which 7 are on the invoice.
func (b *bundle) reconciled(t *testing.T) (periods map[billing.ReconciliationState]string) {
	t.Helper()
	b.meter(t, "calls", "call")
	acme := dbtest.Customer(t, b.store, b.tenant.ID, "acme")
	calls, err := b.store.Meters.Get(t.Context(), b.tenant.ID, "calls")
	require.NoError(t, err)
	books := dbtest.NewBooks(t, b.store, dbtest.Conn(t), b.tenant.ID)
	periods = map[billing.ReconciliationState]string{}
	for i, state := range billing.ReconciliationState("").Values() {
		month := billing.CalendarPeriod(clock.Month(b.now(), i-10), time.UTC)
		period := books.Period(acme.ID, month, true)
		books.Total(period, calls, "10")
		books.Report(period, calls.ID, "si_1", "8", billing.Counted)
		books.Report(period, calls.ID, "si_1", "9", billing.Accepted)
		books.Save(acme.ID, dbtest.Invoice{ID: fmt.Sprint("in_", i), Period: month, Status: "paid", Renewal: true}, map[metering.MeterID]string{calls.ID: "7"})
		if state != billing.ReconciliationOpen {
			books.Reconcile(period, billing.Reconciliation{
				MeterID: calls.ID, Units: metering.Whole(10), Reported: metering.Whole(9), Invoiced: metering.Whole(7), Billed: metering.Whole(10),
				State: state, Reason: reasonOfState(state),
			})
		}
		periods[state] = period.String()
	}
	return periods
}

// reasonOfState returns the reason of the reconciliation that reconciled creates with the state.
func reasonOfState(state billing.ReconciliationState) billing.ReconciliationReason {
	if state == billing.ReconciliationOpen || state == billing.ReconciliationAgreed {
		return billing.ReasonAgreed
	}
	return billing.ReasonNotBilled
}

// reconciliations returns a page of reconciliations.
func (b *bundle) reconciliations(t *testing.T, query string) client.ListReconciliation {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/reconciliation"+query, "")
	require.Equal(t, 200, a.status, a.body)
	var list client.ListReconciliation
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list
}

// decisionPath returns the path of a decision about the reconciliation of the meter calls.
func decisionPath(period, verb string) string {
	return "/v1/billing/reconciliation/" + period + "/calls/" + verb
}

// decide sends a decision with its reason.
func (b *bundle) decide(t *testing.T, period, verb, reason string) (r client.Reconciliation) {
	t.Helper()
	a := b.send(t, "POST", decisionPath(period, verb), fmt.Sprintf(`{"reason":%q}`, reason))
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &r))
	return r
}

func TestReconciliationsAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Empty(t, b.reconciliations(t, "").Data)
	periods := b.reconciled(t)
	all := b.reconciliations(t, "").Data
	require.Len(t, all, len(periods))
	require.Equal(t, all, b.reconciliations(t, "?customer=acme").Data)
	for state, period := range periods {
		list := b.reconciliations(t, "?state="+string(state)).Data
		require.Len(t, list, 1, state)
		r := list[0]
		require.Equal(t, list, b.reconciliations(t, "?period="+period).Data)
		require.Equal(t, []string{string(state), period, "acme", "calls"}, []string{string(r.State), r.Period.Id, r.ExternalId, r.MeterSlug})
		require.Equal(t, []string{"10", "20", "USD"}, []string{r.Ours.Usage.String(), r.Ours.Charge.String(), r.Ours.Currency})
		require.Equal(t, []string{"9", "8"}, []string{r.AcceptedQuantity.String(), r.CountedQuantity.String()})
		require.Equal(t, []string{"7", "21", "USD"}, []string{r.Invoiced.Quantity.String(), r.Invoiced.Amount.String(), *r.Invoiced.Currency})
		require.Len(t, r.Invoices, 1)
		require.Equal(t, "paid", r.Invoices[0].Status)
		require.True(t, r.Invoices[0].Renewal)
		require.NotNil(t, r.Invoices[0].FinalizedAt)
		require.Equal(t, state == billing.ReconciliationOpen, r.BilledQuantity == nil)
		require.Equal(t, state == billing.ReconciliationOpen, r.DecidedAt == nil)
		require.Empty(t, r.DecidedBy)
		reason := reasonOfState(state)
		require.Equal(t, reason == billing.ReasonAgreed, r.Reason == nil)
		if r.Reason != nil {
			require.EqualValues(t, reason, *r.Reason)
		}
		want := reason.Text()
		require.Equal(t, want, billing.Text{Message: r.Message, NextStep: r.NextStep})
	}
	var paged []client.Reconciliation
	for page := b.reconciliations(t, "?page_size=4"); ; page = b.reconciliations(t, "?page_size=4&page_token="+url.QueryEscape(*page.NextPageToken)) {
		paged = append(paged, page.Data...)
		if !page.HasMore {
			break
		}
	}
	require.Equal(t, all, paged)
	require.Empty(t, b.reconciliations(t, "?period=per_999999999999").Data)

	for query, place := range map[string]string{
		"state=billed": "query.state", "period=42": "query.period", "period=per_0": "query.period", "page_token=AAAA": "query.page_token", "page_size=0": "query.page_size",
	} {
		p := b.send(t, "GET", "/v1/billing/reconciliation?"+query, "").problem(t, 422, "invalid")
		require.Equal(t, place, p.Errors[0].Location)
	}
	p := b.send(t, "GET", "/v1/billing/reconciliation?customer=nobody", "").problem(t, 404, "not_found")
	require.Equal(t, "query.customer", p.Errors[0].Location)
}

func TestBillingListsShowCustomerName(t *testing.T) {
	t.Parallel()
	held, reconciled, syncing := setup(t), setup(t), setup(t)
	held.held(t)
	reconciled.reconciled(t)
	syncing.provided(t)
	syncing.openSync(t)
	for path, b := range map[string]*bundle{"holds": held, "reconciliation": reconciled, "syncs": syncing} {
		require.Contains(t, b.send(t, "GET", "/v1/billing/"+path, "").body, `"customer_name":""`)
		require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/acme/upsert", `{"name":"Acme Corp"}`).status)
		require.Contains(t, b.send(t, "GET", "/v1/billing/"+path, "").body, `"customer_name":"Acme Corp"`)
	}
}

func TestOperatorsDecideReconciliations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	periods := b.reconciled(t)
	period := periods[billing.ReconciliationDisputed]
	before := b.reconciliations(t, "?period="+period).Data[0]
	require.Equal(t, []client.ReconciliationActions{"waive", "rebill", "write_off"}, before.Actions)
	for _, verb := range []struct {
		path, state, billed string
		left                []client.ReconciliationActions
	}{
		{"waive", "waived", "10", []client.ReconciliationActions{"rebill", "write_off"}},
		{"rebill", "carried", "7", []client.ReconciliationActions{"waive", "write_off"}},
		{"write-off", "written_off", "10", []client.ReconciliationActions{"waive", "rebill"}},
	} {
		r := b.decide(t, period, verb.path, " because of "+verb.path+"\n")
		require.Equal(t, []string{verb.state, verb.billed, "because of " + verb.path}, []string{string(r.State), r.BilledQuantity.String(), r.Note})
		require.Equal(t, verb.left, r.Actions)
		require.Equal(t, before.Message, r.Message)
		require.Empty(t, r.NextStep, "an operator has decided")
		require.True(t, strings.HasPrefix(r.DecidedBy, "key_"), r.DecidedBy)
		require.Equal(t, r, b.decide(t, period, verb.path, "again"), "twice is the same as once")
		require.Equal(t, []client.Reconciliation{r}, b.reconciliations(t, "?period="+period).Data)
	}
	log := b.send(t, "GET", "/v1/audit-log", "").body
	for _, verb := range []string{"waive", "rebill", "write_off"} {
		said := fmt.Sprintf(`"action":"reconciliation.%s","resource":"%s %s","reason":"because of %s"`, verb, period, before.MeterId, strings.ReplaceAll(verb, "_", "-"))
		require.Equal(t, 1, strings.Count(log, said), log)
	}
	require.Equal(t, 3, strings.Count(log, `"action":"reconciliation.`))
}

func TestRefusedReconciliationDecisionShowsReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	periods := b.reconciled(t)
	for _, verb := range []string{"waive", "rebill", "write-off"} {
		for state, why := range map[billing.ReconciliationState]string{
			billing.ReconciliationOpen:   "there is nothing to decide: the period's last invoice is not final yet",
			billing.ReconciliationAgreed: "there is nothing to decide: the invoices bill the reported usage",
		} {
			p := b.send(t, "POST", decisionPath(periods[state], verb), `{"reason":"why not"}`).problem(t, 409, "conflict")
			require.Equal(t, why, p.Detail)
		}
		disputed := decisionPath(periods[billing.ReconciliationDisputed], verb)
		for body, place := range map[string]string{
			`{}`: "body", `{"reason":""}`: "body.reason", `{"reason":" \n "}`: "body.reason", `{"reason":"\u0000"}`: "body.reason", `{"reason":7}`: "body.reason",
			`{"reason":"` + strings.Repeat("ä", 501) + `"}`: "body.reason", `{"reason":"a","note":"b"}`: "body.note",
		} {
			p := b.send(t, "POST", disputed, body).problem(t, 422, "invalid")
			require.Equal(t, place, p.Errors[0].Location, body)
		}
		for path, place := range map[string]string{
			decisionPath("per_999999999999", verb):         "path.period",
			decisionPath("nothing", verb):                  "path.period",
			strings.Replace(disputed, "calls", "mails", 1): "path.meter",
			strings.Replace(disputed, "calls", "%00", 1):   "path.meter",
		} {
			p := b.send(t, "POST", path, `{"reason":"why not"}`).problem(t, 404, "not_found")
			require.Equal(t, place, p.Errors[0].Location, path)
		}
	}
	require.EqualValues(t, "disputed", b.reconciliations(t, "?state=disputed").Data[0].State)
	b.decide(t, periods[billing.ReconciliationDisputed], "waive", strings.Repeat("ä", 500))

	other := b.keyOf(t, dbtest.Tenant(t, b.store).ID, metering.ScopeAdmin)
	a := b.send(t, "POST", decisionPath(periods[billing.ReconciliationWaived], "rebill"), `{"reason":"not mine"}`, other.headers("")...)
	a.problem(t, 404, "not_found")
	require.Equal(t, `{"data":[],"has_more":false,"next_page_token":null}`, strings.TrimSpace(b.send(t, "GET", "/v1/billing/reconciliation", "", other.headers("")...).body))
}

func TestSyncShowsUnresolvedReconciliations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	periods := b.reconciled(t)
	c, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	asked, err := b.store.Syncs.Request(t.Context(), b.tenant.ID, metering.Operator, c.ID, metering.Manual, b.now())
	require.NoError(t, err)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/billing/syncs/"+asked.ID.String(), "").body), &run))
	require.NotNil(t, run.Reconciliations)
	require.Len(t, *run.Reconciliations, len(periods)-1, "all but what agrees")
	for _, u := range *run.Reconciliations {
		require.Equal(t, periods[billing.ReconciliationState(u.State)], u.Period.Id)
		require.Equal(t, []string{"calls", "10"}, []string{u.MeterSlug, u.Units.String()})
		want := reasonOfState(billing.ReconciliationState(u.State)).Text()
		require.Equal(t, want, billing.Text{Message: u.Message, NextStep: u.NextStep})
		if u.State == "open" {
			require.Nil(t, u.Difference)
			require.Nil(t, u.Reason)
			continue
		}
		require.EqualValues(t, "not_billed", *u.Reason)
		require.Equal(t, []string{"7", "-3"}, []string{u.Invoiced.String(), u.Difference.String()})
	}
}
