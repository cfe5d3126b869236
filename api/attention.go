package api

import (
	"context"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func (s *server) registerAttention() {
	const path = "/v1/billing/attention"
	huma.Register(s.api, heavy(get("list-attention", path, BillingRead, "List everything that needs attention",
		"Lists everything in billing that an operator must act on or that is stuck. The counts are by kind and cause. An item disappears when it is resolved.\n\n"+
			"- Order: the most urgent kind first. Items with the same kind and cause are together, oldest first.\n"+
			"- `sync_failed`: a customer whose last sync failed.\n"+
			"- `sync_delayed`: a sync that has been open for more than 15 minutes.\n"+
			"- `backfill_stuck`: a meter whose backfill has made no progress for an hour.\n"+
			"- `unrated_usage`: a reason why usage of the last three months is not billed. The list of these reasons is at most a minute old.\n"+
			"- `event_conflict`: a customer with events that were not counted because of their `idempotency_key`.\n"+
			"- `alert_triggered`: the highest threshold that a customer reached in the running period of an alert.")), s.listAttention)
	huma.Register(s.api, heavy(accepted(post("retry-failed-syncs", path+"/retry", BillingWrite, "Sync every customer whose last sync failed",
		"Requests a sync of each failed customer, or only of those with the given `cause` or `customers`.\n\n"+
			"- One request covers at most 10,000 customers, the longest failing first. `remaining_customers` is the number of further failed customers.\n"+
			"- If a sync request of a customer is already waiting, no second request is created.\n"+
			"- Workers start the syncs, even if this API process stops."))), s.retryFailed)
}

type attentionItem struct {
	Kind      db.AttentionKind   `json:"kind"`
	ID        string             `json:"id" doc:"Id of the sync, hold, webhook or meter. For event_conflict, the customer. Otherwise '<period>/<meter>' for a reconciliation, '<day>/<customer>/<meter>' for a discrepancy, '<alert>/<firing>' for an alert, and '<reason>/<currency>' for unrated usage" example:"hld_42"`
	Reference string             `json:"reference" doc:"Invoice at the provider, slug of the meter, URL of the webhook, threshold of the alert with its unit, or number of customers or events. Empty for a sync"`
	Customer  *attentionCustomer `json:"customer,omitempty"` // absent if the item concerns no customer
	Cause     string             `json:"cause" example:"the webhook answered 400"`
	Amounts   []money            `json:"amounts" doc:"Amounts at stake. For a failed sync, the charges of reports that were not accepted. For a hold, the amount of the invoice. For a reconciliation, the charge of the period in Odometer. For unrated usage, the estimated charge. For an alert on charges, the estimated charge of the period when it fired"`
	Since     time.Time          `json:"since" doc:"Time since which the item exists. For a failed sync, the customer's first sync in the unbroken series of failures"`
	Until     *time.Time         `json:"until" doc:"Time by which an operator must act. Null if there is no deadline"`
	Action    string             `json:"action" doc:"Recommended action" example:"Fix the cause, then sync the customer again."`
	URL       string             `json:"url" doc:"Path in this API with the details" example:"/v1/billing/holds/hld_42"`
	Syncing   bool               `json:"syncing" doc:"Whether a sync of the customer is open"`
}

type attentionCustomer struct {
	ID         string `json:"id" example:"cus_42"`
	ExternalID string `json:"external_id"`
	Name       string `json:"name" doc:"Empty if the customer has no name"`
}

type money struct {
	Amount   metering.Decimal `json:"amount"`
	Currency string           `json:"currency" example:"USD"`
}

type attentionCount struct {
	Kind  db.AttentionKind `json:"kind"`
	Count int64            `json:"count"`
}

type attentionCause struct {
	Kind  db.AttentionKind `json:"kind"`
	Cause string           `json:"cause" example:"the webhook answered 400"`
	Count int64            `json:"count"`
	Since time.Time        `json:"since" doc:"Start of the oldest item"`
}

type attentionPage struct {
	List[attentionItem]
	Total  int64            `json:"total_items" doc:"Number of all items. The filters 'kind' and 'cause' do not change the number"`
	Counts []attentionCount `json:"counts" doc:"Number of items of every kind, including kinds without items"`
	Causes []attentionCause `json:"causes" doc:"The 20 most frequent causes of each kind"`
}

type listAttentionInput struct {
	Paging
	Kind  db.AttentionKind `query:"kind"`
	Cause string           `query:"cause" maxLength:"1000" doc:"A cause, as in 'causes' of the response"`
}

type listAttentionOutput struct{ Body attentionPage }

func (s *server) listAttention(ctx context.Context, in *listAttentionInput) (*listAttentionOutput, error) {
	if !storable(in.Cause) {
		return nil, metering.Invalid("query.cause", "must be UTF-8 without NUL")
	}
	filter := db.AttentionFilter{Kind: in.Kind, Cause: in.Cause}
	if err := s.readPageToken(ctx, in.PageToken, &filter.After); err != nil {
		return nil, err
	}
	found, err := s.Store.Attention.List(ctx, principalOf(ctx).Tenant.ID, filter, s.recentUnrated(ctx), s.Now(), in.PageSize)
	if err != nil {
		return nil, err
	}
	page := attentionPage{List: listOf(ctx, s, found.Page, showAttention, db.AttentionItem.Key), Causes: []attentionCause{}}
	for _, kind := range db.AttentionKind("").Values() {
		page.Counts = append(page.Counts, attentionCount{kind, found.Counts[kind]})
		page.Total += found.Counts[kind]
	}
	for _, c := range found.Causes {
		page.Causes = append(page.Causes, attentionCause{c.Kind, c.Cause, c.Items, c.Since.UTC()})
	}
	return &listAttentionOutput{page}, nil
}

func showAttention(i db.AttentionItem) attentionItem {
	shown := attentionItem{
		Kind: i.Kind, ID: i.ID, Reference: i.Reference, Cause: i.Cause, Amounts: []money{}, Since: i.Since.UTC(), Until: i.Until, Action: i.Kind.Action(), URL: i.URL, Syncing: i.Syncing,
	}
	if i.CustomerID != metering.WholeTenant {
		shown.Customer = &attentionCustomer{i.CustomerID.String(), i.ExternalID, i.CustomerName}
	}
	for _, a := range i.Amounts {
		shown.Amounts = append(shown.Amounts, money{a.Amount, a.Currency})
	}
	return shown
}

type retryFailedInput struct {
	Repeatable
	Body struct {
		Cause     string   `json:"cause,omitempty" minLength:"1" maxLength:"1000" doc:"Cause of the failed syncs to repeat. Default: every cause" example:"the webhook answered 400"`
		Customers []string `json:"customers,omitempty" minItems:"1" maxItems:"1000" doc:"External IDs of the customers to sync. Default: every customer with a failed last sync" example:"[\"acme\"]"`
	}
}

type retriedSyncs struct {
	Customers int `json:"customers" doc:"Number of customers for which a sync was requested"`
	Joined    int `json:"joined" doc:"Number of customers with an earlier sync request that was still waiting. The sync of that earlier request serves this request too"`
	Remaining int `json:"remaining_customers" doc:"Number of failed customers beyond the 10,000 of one request. Send another request with a new Idempotency-Key"`
}

type retryFailedOutput struct{ Body retriedSyncs }

// retryFailed requests a sync for each selected customer with a failed last sync. It starts up to begunAtOnce
// workflow runs itself. The workers start the other runs.
func (s *server) retryFailed(ctx context.Context, in *retryFailedInput) (*retryFailedOutput, error) {
	if !storable(in.Body.Cause) {
		return nil, metering.Invalid("body.cause", "must be UTF-8 without NUL")
	}
	for i, customer := range in.Body.Customers {
		if !storable(customer) {
			return nil, metering.Invalid(fmt.Sprintf("body.customers[%d]", i), "must be UTF-8 without NUL")
		}
	}
	who := principalOf(ctx)
	var customers []metering.CustomerID
	shown, repeated, err := once(ctx, s, in.Repeatable, "retry-failed-syncs", in.Body, func(within db.Creators) (retriedSyncs, error) {
		retried, err := within.Retries.Failed(ctx, who.Tenant.ID, who.Actor, ledger.RetryFilter{Cause: in.Body.Cause, Customers: in.Body.Customers}, s.Now())
		customers = retried.Customers
		return retriedSyncs{len(retried.Customers), retried.Joined, retried.Remaining}, err
	})
	if err == nil && !repeated {
		s.beginSyncs(ctx, customers)
	}
	return &retryFailedOutput{shown}, err
}

// begunAtOnce is the maximum number of workflow runs that the API process starts for one request.
const begunAtOnce = 100

// beginSyncs starts the workflow runs of up to begunAtOnce requested syncs. It stops at the first failure, because
// workers start the remaining runs.
func (s *server) beginSyncs(ctx context.Context, customers []metering.CustomerID) {
	ctx, cancel := context.WithTimeout(ctx, runsWait)
	defer cancel()
	tenant := principalOf(ctx).Tenant.ID
	for _, customer := range customers[:min(len(customers), begunAtOnce)] {
		if err := s.startSync(ctx, tenant, customer); err != nil {
			s.Log.WarnContext(ctx, "request the failed syncs: Temporal did not answer, a worker starts them", "tenant", tenant, "error", err)
			return
		}
	}
}
