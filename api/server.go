// Package api is Odometer's HTTP interface: huma operations over net/http.
//
// It owns what travels: names, statuses, credentials, pages and problems. It
// decides nothing about usage or money (package metering) and holds no SQL
// (package db).
package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Deps is what the API is made of.
type Deps struct {
	Store         *db.DB
	Credentials   *db.DB // on connections of its own, so that who asks is known however busy others are; nil: Store
	Writer        *db.Writer
	EventCounter  *db.EventCounter
	Temporal      client.Client
	Guard         providers.Guard
	Providers     providers.Registry
	Keyring       db.Keyring
	Keys          Keys
	Retention     metering.Retention
	Secret        []byte          // page tokens are signed under a key derived from it
	BaseURL       string          // where browsers reach the API
	WorkflowsURL  string          // the Temporal UI's list of runs; empty: nobody is led there
	ErrorDocsBase string          // the URL whose children explain the error codes
	SyncWait      time.Duration   // how long an answer waits for a sync; 0: 25 s
	Stopping      <-chan struct{} // closed when the process is about to end: nobody waits any longer
	Redis         *redis.Client   // counts for all replicas; nil: each counts alone
	// FailuresPerMinute is how many invalid credentials an address may send; 0: 100.
	FailuresPerMinute int
	// MaxRequestsPerMinute bounds the requests with events that a tenant may set for itself; 0: 60,000.
	MaxRequestsPerMinute int
	CallsPerMinute       int            // that a tenant may make beside those with events; 0: 6,000
	TrustedProxies       []netip.Prefix // whose X-Forwarded-For is believed
	BodyBytes            int64          // of tenants' request bodies in memory at once; 0: 32 MiB
	BodyTime             time.Duration  // for a body's first 16 KiB to arrive; 0: 10 s
	AnswerTime           time.Duration  // for a client to take a part of an answer; 0: 30 s
	AnswersBytes         int64          // of tenants' answers in memory at once; 0: 32 MiB
	SearchTime           time.Duration  // for which a page of events is looked for; 0: 2 s
	Now                  func() time.Time
	ClockOffset          metering.ClockOffset // of Now; while it is beyond metering.ClockLimit, nothing is written
	Log                  *slog.Logger
	Metrics              prometheus.Registerer
}

type server struct {
	Deps
	*people
	mux           *http.ServeMux
	screen        http.HandlerFunc // the dashboard's page
	api           huma.API
	decimals      map[string]map[string]*decimalPlan // of responses, by operation and status
	apiKeys       *coalescer[string, *db.Credential] // by their hash
	signers       *coalescer[metering.TenantID, db.Signers]
	uses          *coalescer[db.KeyUse, struct{}]
	secretUses    *coalescer[db.SecretUse, struct{}]
	sweeps        *coalescer[struct{}, struct{}] // of request ids
	resets        *coalescer[string, struct{}]   // that were asked for, by e-mail
	claims        atomic.Int64                   // of request ids
	bodies        bodies
	refusedBodies *refusedBodies
	requests      *db.Shares[metering.TenantID] // under way
	exports       *db.Shares[metering.TenantID]
	processors    *db.Shares[metering.TenantID] // for large bodies
	answers       *db.Shares[metering.TenantID] // bytes of answers in memory
	reserver      *db.Reserver
	heavy         heavyTurns // operations that read all customers of a tenant
	failures      *failures
	refusals      refusals
	listings      listings
	lastUnrated   *lru.Cache[metering.TenantID, keptUnrated]
	firstKept     keptCustomers[time.Time] // the start of the first billing period
	metersKept    *lru.Cache[metering.TenantID, keptOf[[]db.DimensionMeter]]
	termsKept     keptCustomers[[]billing.DimensionTerms]
	notSignedIn   *coalescer[refusedSignIn, struct{}]
	minutes       limiter
	pageKey       []byte
	requestKey    []byte // under which repeatable requests are hashed
	metrics       metrics
	checked       lastChecks

	confirmationKey []byte // signs the tokens of confirmations
}

// New returns the handler of every route.
func New(deps Deps) (http.Handler, error) {
	pageKey, err := derive(deps.Secret, "page-tokens")
	if err != nil {
		return nil, err
	}
	requestKey, err := derive(deps.Secret, "requests")
	if err != nil {
		return nil, err
	}
	deps.Credentials = cmp.Or(deps.Credentials, deps.Store)
	deps.CallsPerMinute = cmp.Or(deps.CallsPerMinute, defaultCalls)
	deps.MaxRequestsPerMinute = cmp.Or(deps.MaxRequestsPerMinute, metering.DefaultRequestsCeiling)
	deps.SearchTime = cmp.Or(deps.SearchTime, defaultSearch)
	confirmationKey, err := derive(deps.Secret, "confirmations")
	if err != nil {
		return nil, err
	}
	s := newServer(deps)
	s.pageKey, s.requestKey, s.confirmationKey = pageKey, requestKey, confirmationKey
	s.metrics = newMetrics(deps.Metrics)
	s.refusedBodies = newRefusedBodies(s.metrics.refused, deps.Log)
	s.bodies, s.requests = newBodies(deps, s.refusedBodies), db.NewShares[metering.TenantID](maxRequests)
	s.exports, s.answers = db.NewShares[metering.TenantID](maxExports), db.NewShares[metering.TenantID](cmp.Or(deps.AnswersBytes, answersBytes))
	s.heavy, s.reserver = newHeavyTurns(), db.NewReserver(deps.Store, s.sharedNow)
	s.processors = newProcessors()
	if deps.Metrics != nil {
		deps.Metrics.MustRegister(checkMetrics{s})
	}
	s.apiKeys = &coalescer[string, *db.Credential]{run: deps.Credentials.APIKeys.Credentials, timeout: credentialTimeout}
	s.signers = &coalescer[metering.TenantID, db.Signers]{run: deps.Credentials.HMACSecrets.Signers, timeout: credentialTimeout}
	s.uses = &coalescer[db.KeyUse, struct{}]{run: s.noteUses, timeout: credentialTimeout}
	s.secretUses = &coalescer[db.SecretUse, struct{}]{run: s.noteSecretUses, timeout: credentialTimeout}
	s.notSignedIn = &coalescer[refusedSignIn, struct{}]{run: s.auditSignIns, timeout: auditTimeout}
	s.sweeps = &coalescer[struct{}, struct{}]{run: s.sweepRequestIDs, timeout: credentialTimeout}
	s.resets = &coalescer[string, struct{}]{run: s.noteResets, timeout: credentialTimeout}
	if s.listings.recorded, err = simplelru.NewLRU[listing, time.Time](maxListings, nil); err != nil {
		return nil, err
	}
	if s.lastUnrated, err = lru.New[metering.TenantID, keptUnrated](maxUnrated); err != nil {
		return nil, err
	}
	if s.firstKept, err = keepCustomers[time.Time](); err != nil {
		return nil, err
	}
	if s.metersKept, err = lru.New[metering.TenantID, keptOf[[]db.DimensionMeter]](maxKeptMeters); err != nil {
		return nil, err
	}
	if s.termsKept, err = keepCustomers[[]billing.DimensionTerms](); err != nil {
		return nil, err
	}
	tenants, strangers, err := newLimiters(deps)
	if err != nil {
		return nil, err
	}
	s.minutes = tenants
	if s.failures, err = newFailures(deps, strangers); err != nil {
		return nil, err
	}
	s.people, err = newPeople(deps, strangers)
	return s, err
}

func newServer(deps Deps) *server {
	adaptHuma()
	mux := http.NewServeMux()
	s := &server{Deps: deps, mux: mux, api: humago.New(mux, document())}
	s.api.UseMiddleware(s.refuseWrites, s.authorize, s.refuseUnknown, s.chooseNumbers)
	s.routes()
	return s
}

// routes lists everything the API answers to.
func (s *server) routes() {
	huma.Register(s.api, get("list-customers", "/v1/customers", CustomersRead, "List customers",
		"Customers are listed in order of creation. Archived customers are included only with `archived=true`."), s.listCustomers)
	huma.Register(s.api, created(post("create-customer", "/v1/customers", CustomersWrite, "Create a customer",
		"Returns 409 if the `external_id` is already in use.\n\n"+
			"- The first event of an unknown customer also creates the customer, unless the tenant is strict.\n"+
			"- `billing_provider_id` decides which customer the provider charges. Setting it needs the permission `billing:write`.")), s.createCustomer)
	huma.Register(s.api, get("get-customer-by-external-id", "/v1/customers/by-external-id", CustomersRead, "Get a customer by an external ID that does not fit in a path",
		"Use this path for an external ID that contains a slash, or that is `.`, `..`, `by-id` or `by-external-id`.\n\n"+
			"Every other path with an external ID accepts `by-external-id` in its place, with the ID in the query parameter `external_id`. Example: `PUT "+
			"/v1/customers/by-external-id/plan?external_id=a%2Fb`."), s.customerByExternalID)
	huma.Register(s.api, get("get-customer-by-id", "/v1/customers/by-id", CustomersRead, "Get a customer by its id",
		"This API assigned the `id`, such as `cus_12`. Erased customers are found too."), s.customerByID)
	huma.Register(s.api, get("get-customer", "/v1/customers/{external_id}", CustomersRead, "Get a customer",
		"The `external_id` is your own name for the customer. Events send it as `customer_id`."), s.getCustomer)
	huma.Register(s.api, put("upsert-customer", "/v1/customers/{external_id}/upsert", CustomersWrite, "Create or update a customer",
		"Updates the fields that the body contains and keeps the other fields. Creates the customer if it does not exist."), s.upsertCustomer)
	s.describeStatus("/v1/customers/{external_id}/upsert", "201", "Created")

	huma.Register(s.api, accepted(post("erase-customer", "/v1/customers/{external_id}/erase", CustomersErase, "Erase a customer's personal data",
		"Replaces the external ID, the name, the metadata and the content of the customer's events with digests. Totals, bills and reports are kept.\n\n"+
			"- Afterwards, the external ID is `erased-<number>`, and events with that ID are rejected.\n"+
			"- Returns 409 while usage is unreported, a report is outstanding or a sync has not ended. Also returns 409 while a closed period is not fully "+
			"billed or an invoice is held. The error names the cause.")), s.eraseCustomer)
	s.archives()
	huma.Register(s.api, get("list-meters", "/v1/meters", MetersRead, "List meters",
		"Meters are listed in order of creation. Archived meters are included only with `archived=true`."), s.listMeters)
	huma.Register(s.api, created(post("create-meter", "/v1/meters", MetersWrite, "Create a meter",
		"The meter counts new events of its type immediately. A workflow counts the stored events. Until the workflow has finished, `status` is `backfilling` and "+
			"the meter's usage returns 503.\n\n"+
			"- A tenant has at most 1,000 meters, archived ones included. Beyond that the request returns 409.")), s.createMeter)
	huma.Register(s.api, get("get-meter", "/v1/meters/{slug}", MetersRead, "Get a meter",
		"While the meter is backfilling, `backfill` shows the progress."), s.getMeter)
	huma.Register(s.api, heavy(patch("update-meter", "/v1/meters/{slug}", MetersWrite, "Update a meter",
		"A new `aggregation`, `value_property`, `filters` or `group_by` counts the stored events again. Until these events are counted, reads and billing use the "+
			"previous definition, which `current` shows. Closed periods keep their totals.\n\n"+
			howToConfirm)), s.updateMeter)
	s.meterPreviews()
	huma.Register(s.api, get("list-pricing", "/v1/pricing", PricingRead, "List the prices of meters",
		"Lists the meters that have a price of their own. With `plan`, lists the meters that have a price in that plan. Meters are listed by id, archived "+
			"meters included."), s.listPricing)
	huma.Register(s.api, get("get-pricing", "/v1/meters/{slug}/pricing", PricingRead, "Get a meter's prices",
		"Returns the price in force now and all versions: past, present and scheduled."), s.getPricing)
	huma.Register(s.api, heavy(put("set-pricing", "/v1/meters/{slug}/pricing", PricingWrite, "Set a meter's price",
		"Adds a version of the price. A billing period is charged at the version in force at its start.\n\n"+
			"- Without `effective_from`, the first price applies from the beginning, so it also charges billing periods that have begun.\n"+
			"- Without `effective_from`, a later version applies from the start of the next calendar month.\n"+
			"- A tenant has at most 20,000 price versions across all meters and plans. Beyond that the request returns 409.\n\n"+
			howToConfirm)), s.setPricing)
	huma.Register(s.api, heavy(post("preview-pricing", "/v1/meters/{slug}/pricing/preview", PricingWrite, "Preview the effect of a price",
		aboutPreview)), s.previewPricing)
	s.calculations()
	huma.Register(s.api, remove("withdraw-pricing", "/v1/meters/{slug}/pricing/{version}", PricingWrite, "Withdraw a meter's scheduled price",
		"Returns 409 if the version has already begun."), s.withdrawPricing)
	huma.Register(s.api, created(post("create-plan", "/v1/plans", PricingWrite, "Create a plan",
		"A plan contains prices for some meters. Customers of the plan pay these prices. All other meters are charged at their own prices.\n\n"+
			"- A tenant has at most 1,000 plans, archived ones included. Beyond that the request returns 409.")), s.createPlan)
	huma.Register(s.api, get("list-plans", "/v1/plans", PricingRead, "List plans",
		"Plans are listed in order of creation. Archived plans are included only with `archived=true`."), s.listPlans)
	huma.Register(s.api, get("get-plan", "/v1/plans/{slug}", PricingRead, "Get a plan",
		"The plan is identified by its slug."), s.getPlan)
	huma.Register(s.api, get("get-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingRead, "Get a meter's prices in a plan",
		"Returns the price in force now in this plan and all versions. Without a price in the plan, the meter's own price applies."), s.getPlanPricing)
	huma.Register(s.api, heavy(put("set-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingWrite, "Set a meter's price in a plan",
		"Adds a version of the meter's price in this plan. The rules of `PUT /v1/meters/{slug}/pricing` apply.")), s.setPlanPricing)
	huma.Register(s.api, heavy(post("preview-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/preview", PricingWrite, "Preview the effect of a price in a plan",
		aboutPreview)), s.previewPlanPricing)
	huma.Register(s.api, remove("withdraw-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/{version}", PricingWrite, "Withdraw a meter's scheduled price in a plan",
		"Returns 409 if the version has already begun."), s.withdrawPlanPricing)
	huma.Register(s.api, get("get-customer-plan", "/v1/customers/{external_id}/plan", PricingRead, "Get a customer's plan",
		"Returns the plan that charges the current billing period, and every assignment in order of `effective_from`."), s.getCustomerPlan)
	huma.Register(s.api, put("assign-plan", "/v1/customers/{external_id}/plan", PricingWrite, "Assign a plan to a customer",
		"The assignment applies to the billing periods that start at `effective_from` or later. If the plan has a price for a meter, that price replaces "+
			"the meter's own price.\n\n"+
			howToConfirm), s.assignPlan)
	s.customerPrices()

	huma.Register(s.api, limited(post("ingest-event", eventsPath, EventsWrite, "Send one event",
		"An accepted event is stored and counted in every total before the response is sent. A repeat with the same `idempotency_key` is a duplicate and "+
			"adds nothing.")), s.ingestEvent)
	huma.Register(s.api, limited(post("ingest-events", eventsPath+"/batch", EventsWrite, "Send up to 1,000 events",
		"Each event is accepted or rejected on its own. `errors` lists the rejected events by their index. The accepted events are stored in one transaction.")), s.ingestEvents)
	s.describeEvents()
	s.quotas()
	huma.Register(s.api, get("list-events", eventsPath, EventsRead, "List events",
		"Events are listed newest first by timestamp, each with the meters that count it. Rejected events are not stored and not listed.\n\n"+
			"- The default range is the last 24 hours. With `idempotency_key`, the default range covers all stored events.\n"+
			"- A call searches for about two seconds. A page may therefore have few events or none while `next_page_token` is set. Continue until `next_page_token` is "+
			"null. `searched_until` shows the progress.\n"+
			"- Listing is recorded in the audit log, at most once an hour for each customer."), s.listEvents)
	huma.Register(s.api, get("get-event-counts", eventsPath+"/counts", EventsRead, "Get the number of accepted, duplicate and rejected events",
		"Counts the results of requests by hour, day, week or month. Use these counts to monitor ingestion: bills are computed from usage, never from these counts.\n\n"+
			"- Each API process saves its counts every five seconds. A process that is killed loses the counts that it has not saved.\n"+
			"- Counts are kept for 90 days.\n"+
			"- Requests that are refused as a whole are not counted.\n"+
			"- Rejected events are not stored. Only these counts show them."), s.eventCounts)
	s.conflicts()
	s.uncountedEvents()

	huma.Register(s.api, filtering(get("get-usage", "/v1/usage", UsageRead, "Get a meter's usage as a time series",
		"The parameter `filter.<property>=value`, such as `filter.model=large`, selects the groups of the meter that have this value.\n\n"+
			"- A JSON number, string, true, false or null selects that value: `0` selects the number, `\"0\"` selects the string. Any other text selects the string.\n"+
			"- Several values of one property are alternatives. Filters of several properties must all match.\n"+
			"- An event without the property counts in the group null.\n"+
			"- `filter` of each group in the response contains the parameters that select the group.")), s.usage)
	huma.Register(s.api, get("get-usage-summary", "/v1/usage/summary", UsageRead, "Get the usage of every meter",
		"Returns one customer's usage of each meter between `start` and `end`."), s.usageSummary)
	huma.Register(s.api, get("get-usage-total", "/v1/usage/total", UsageRead, "Get usage as one number",
		"With `meter`, returns the usage of that meter. Without `meter`, returns the sum of all meters, even if their units differ. If several meters have usage, `meters` in the response lists them.\n\n"+
			"A meter that is still backfilling is excluded from the sum and listed in `backfilling`."), s.usageTotal)
	huma.Register(s.api, heavy(get("get-daily-usage", "/v1/usage/daily", UsageRead, "Get the daily usage of every meter for all customers",
		"Returns the last days up to today, in the tenant's time zone. Days without usage are omitted.")), s.usageDaily)
	huma.Register(s.api, heavy(filtering(get("get-usage-breakdown", breakdownPath, UsageRead, "Get a meter's usage by customer, plan and property",
		"Returns one row for each combination of the dimensions in `by` and each window. Combinations without usage are omitted.\n\n"+
			"- The rows of all pages add up to `total`. With `limit`, the last row contains the sum of all rows beyond the limit.\n"+
			"- Each page shows the usage at the time of its request. Request a range that has ended if the pages must add up.\n"+
			"- `filter.<property>=value` selects groups, as in a time series.\n"+
			"- In CSV, the dimensions are columns. The `Link` header contains the next page."))), s.usageBreakdown)
	s.describeFile(breakdownPath, "One page of rows", map[string]*huma.Schema{
		"application/json": s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[breakdownResult](), true, ""),
		"text/csv":         {Type: huma.TypeString},
	})
	huma.Register(s.api, get("get-usage-comparison", "/v1/usage/comparison", UsageRead, "Compare usage with the previous month",
		"Returns the customer's usage of the current month to date and of the whole previous month, by meter."), s.usageComparison)
	huma.Register(s.api, get("export-usage", exportPath, EventsRead, "Export a customer's events",
		"Returns the events in pages, oldest event first. "+aboutExports), s.exportUsage)
	huma.Register(s.api, get("export-events", exportAll, EventsRead, "Export the events of all customers",
		"Returns the events in pages, one customer after the other in order of creation, oldest event of each customer first. "+aboutExports), s.exportEvents)
	s.describeExports()

	huma.Register(s.api, get("preview-billing", "/v1/billing/preview", BillingRead, "Preview the charges of the current billing period",
		"Returns the charge of each meter as if the current billing period ended now. Nothing is reported.\n\n"+
			"- Amounts that were already reported are not deducted.\n"+
			"- Items with `late_for` are late usage of closed periods.\n"+
			"- `GET /v1/billing/explain` returns the breakdown of a charge."), s.previewBilling)
	huma.Register(s.api, get("list-connectable-providers", "/v1/billing/providers", BillingRead, "List the providers that can be connected",
		"For a provider that sends events, the response contains the endpoint to create at the provider: `webhook_url` and `webhook_events`. Save the provider with "+
			"that endpoint's signing secret."), s.listConnectable)
	huma.Register(s.api, post("make-provider-secret", "/v1/billing/providers/{type}/secret", BillingWrite, "Create a secret for a provider before saving it",
		"Use this call if your receiver verifies signatures from the start, because saving the provider sends a signed ping. Install the secret in the receiver, then save the provider with it.\n\n"+
			"Returns 422 if the provider issues its own secrets."), s.makeProviderSecret)
	huma.Register(s.api, get("get-billing-provider", "/v1/billing/provider", BillingRead, "Get the billing provider",
		"Secrets are not returned, only their last four characters."), s.getProvider)
	huma.Register(s.api, s.settingsBody(put("save-billing-provider", "/v1/billing/provider", BillingWrite, "Save the billing provider",
		"The settings are tested at the provider first. Omit a secret to keep the saved secret.\n\n"+
			"The first save of a provider needs its secrets. Only a webhook's `secret` is created if you omit it.")), s.saveProvider)
	s.describeProvider()
	huma.Register(s.api, remove("delete-billing-provider", "/v1/billing/provider", BillingWrite, "Delete the billing provider",
		"Usage is still counted, but nothing is reported.\n\n"+
			"- Reports that were never sent are withdrawn. Reports with an unknown outcome count as billed until they are resolved.\n"+
			"- A provider that is saved later bills the open periods, except for the usage that another provider has billed.\n"+
			"- A billing period that closes without a provider is never billed.\n"+
			"- Returns 409 while a report is being sent, a closed period is not fully billed, or an invoice is held. The error names the cause."), s.deleteProvider)
	huma.Register(s.api, s.providerEvents(post("receive-provider-event", providerEventsPath, Public, "Receive an event from a billing provider",
		"Only the provider calls this endpoint. The provider's signature is the credential.\n\n"+
			"- 200 means that the event is stored. The event is processed once, even if it is delivered several times.\n"+
			"- Events of other accounts, or of the account's other mode, return 200 and are discarded.")), s.providerEvent)
	s.describeProviderEvent()
	huma.Register(s.api, post("sync-billing", "/v1/billing/sync", BillingWrite, "Sync a customer with the billing provider",
		"Starts a workflow that reports unreported usage to the provider, and waits up to 25 seconds for it. No unit is billed twice, even "+
			"after a crash or a repeated request.\n\n"+
			"- 200: the sync has finished. Its `status` is `succeeded` or `failed`.\n"+
			"- 202: the sync is still running, or the customer is paused. Poll `status_url`."), s.syncBilling)
	s.describeStatus("/v1/billing/sync", "202", "Still running: read status_url")
	huma.Register(s.api, get("get-billing-sync", "/v1/billing/syncs/{id}", BillingRead, "Get a sync",
		"Returns the reported lines, the number of attempts, the last error, the time of the next attempt, and whether the customer is paused."), s.getSync)
	s.steerSyncs()
	huma.Register(s.api, post("resolve-report", "/v1/billing/reports/{id}/resolve", BillingWrite, "Resolve a report with an unknown outcome",
		"Only for a report in state `in_doubt`. Check at the provider whether the report arrived, then set `state` to `accepted` or `rejected`. Until then, "+
			"the report counts as billed. After `rejected`, the customer's next sync reports the usage again."), s.resolveReport)
	huma.Register(s.api, get("list-billing-syncs", "/v1/billing/syncs", BillingRead, "List syncs",
		"Syncs are listed newest first. `status` and `customer` filter the list."), s.listSyncs)
	huma.Register(s.api, get("list-billing-periods", "/v1/billing/periods", BillingRead, "List a customer's billing periods",
		"Billing periods are listed newest first. A closed period never changes. Usage that arrives later is shown as late usage. Another "+
			"period bills it, unless the tenant's `late_policy` is `report`."), s.listPeriods)
	huma.Register(s.api, get("get-statement", "/v1/billing/statements/{period}", BillingRead, "Get the bill of a billing period",
		"Returns every line with its breakdown, the adjustments that are billed in the period, and the totals by currency. "+
			"`reports` is a page of the reports that bill the period.\n\n"+
			"A period gets its id when it is stored: by a sync of the customer or in the background, at the latest before it closes."), s.getStatement)
	huma.Register(s.api, get("export-statements", statementsExport, BillingRead, "Export the bills of a month for finance",
		"Returns every line of the bills of all customers as CSV, for the billing periods that end in the month. A period that ends exactly at the "+
			"start of a month belongs to the previous month.\n\n"+
			"- Each page contains the bills of up to `page_size` customers, in order of creation. The `Link` header contains the next page.\n"+
			"- The column `amount` adds up to the totals of the bills by currency.\n"+
			"- Periods that are not closed show the amounts as of now: see the column `state`.\n"+
			"- A `'` is placed before text that a spreadsheet would read as a formula.\n"+
			"- Every export is recorded in the audit log."), s.exportStatements)
	s.describeFile(statementsExport, "The lines of one page of customers", map[string]*huma.Schema{"text/csv": {Type: huma.TypeString}})
	huma.Register(s.api, get("explain-billing", "/v1/billing/explain", BillingRead, "Get the breakdown of a meter's charge in a billing period",
		"Lists the steps from the number of events to the amount, which is the last step. Without `period` and `at`, the current period is explained."), s.explain)
	huma.Register(s.api, heavy(get("get-revenue", "/v1/billing/revenue", BillingRead, "Get billed and estimated revenue by month and currency",
		"Months are calendar months of the tenant's time zone. Invoices at the provider may differ.\n\n"+
			"- `billed`: closed periods that a provider bills in live mode, with their billed adjustments. The closing decides whether a provider bills a period.\n"+
			"- `estimated`: periods that are not closed.\n"+
			"- `unbilled`: the other closed periods and adjustments.")), s.revenue)
	huma.Register(s.api, get("list-discrepancies", "/v1/billing/discrepancies", BillingRead, "List discrepancies between totals and events",
		"Lists the differences that the daily audit found. The list is empty unless something is wrong with the service."), s.listDiscrepancies)
	s.attention()
	s.unrated()
	s.reconciliations()
	s.holds()
	huma.Register(s.api, get("get-auto-sync", "/v1/billing/auto-sync", BillingRead, "Get the Auto-Sync settings",
		"Returns the schedule, whether it is paused, and the last and next runs."), s.getAutoSync)
	huma.Register(s.api, put("save-auto-sync", "/v1/billing/auto-sync", BillingWrite, "Save the Auto-Sync settings",
		"Replaces the saved settings and updates the schedule immediately. If Temporal is unavailable, the schedule is updated once it responds.\n\n"+
			"- `enabled: false` deletes the schedule and cancels its run that is in progress. Reports that were sent stay sent."), s.saveAutoSync)
	huma.Register(s.api, accepted(post("trigger-auto-sync", "/v1/billing/auto-sync/trigger", BillingWrite, "Run Auto-Sync now",
		"Syncs every customer who is out of sync.")), s.triggerAutoSync)

	huma.Register(s.api, created(post("create-api-key", "/v1/api-keys", KeysManage, "Create an API key",
		"The key is shown only in this response.\n\n"+
			"- A key cannot have more permissions than its creator.\n"+
			"- A tenant has at most 1,000 valid keys. Beyond that the request returns 409.")), s.createAPIKey)
	huma.Register(s.api, get("list-api-keys", "/v1/api-keys", KeysManage, "List API keys",
		"Keys are listed newest first, including revoked and expired keys. The keys themselves are not stored."), s.listAPIKeys)
	huma.Register(s.api, post("revoke-api-key", "/v1/api-keys/{id}/revoke", KeysManage, "Revoke an API key",
		"The key is invalid on every replica as soon as the response is sent. A rotation of the key ends. Revoking the key again changes nothing."), s.revokeAPIKey)
	huma.Register(s.api, created(post("rotate-api-key", "/v1/api-keys/{id}/rotate", KeysManage, "Rotate an API key",
		"Returns a new key with the same name, scope and expiry. The old key is revoked immediately, or after `overlap_seconds`. Returns 409 if the old "+
			"key is revoked or expired.")), s.rotateAPIKey)

	huma.Register(s.api, created(post("create-hmac-secret", "/v1/hmac-secrets", KeysManage, "Create an HMAC secret",
		"The secret is shown only in this response.\n\n"+
			"- A tenant has at most two valid secrets. Beyond that the request returns 409.\n"+
			"- With `signatures` set to `v2`, the secret cannot sign requests in v1.")), s.createHMACSecret)
	huma.Register(s.api, get("list-hmac-secrets", "/v1/hmac-secrets", KeysManage, "List HMAC secrets",
		"Secrets are listed newest first, including revoked and expired secrets. The secrets themselves are not shown."), s.listHMACSecrets)
	huma.Register(s.api, post("revoke-hmac-secret", "/v1/hmac-secrets/{id}/revoke", KeysManage, "Revoke an HMAC secret",
		"Signatures by the secret are invalid on every replica as soon as the response is sent. Revoking the secret again changes nothing."), s.revokeHMACSecret)
	huma.Register(s.api, created(post("rotate-hmac-secret", "/v1/hmac-secrets/{id}/rotate", KeysManage, "Rotate an HMAC secret",
		"Returns a new secret with the same name, scope, signatures and expiry. The old secret stays valid for `overlap_seconds`.")), s.rotateHMACSecret)

	s.alerts()
	huma.Register(s.api, created(post("create-webhook", "/v1/webhooks", HooksWrite, "Create a webhook",
		"The webhook receives messages of its event types. The signing secret is shown only in this response.\n\n"+ofCharges)), s.createWebhook)
	huma.Register(s.api, get("list-webhooks", "/v1/webhooks", HooksRead, "List webhooks",
		"Webhooks are listed in order of creation, without their secrets."), s.listWebhooks)
	huma.Register(s.api, get("get-webhook", "/v1/webhooks/{id}", HooksRead, "Get a webhook",
		"The secret is not returned."), s.getWebhook)
	huma.Register(s.api, patch("update-webhook", "/v1/webhooks/{id}", HooksWrite, "Update, disable or enable a webhook",
		"Updates the fields that the body contains and keeps the other fields. Messages that arise while a webhook is disabled are not sent to it later.\n\n"+
			"A change of `url` or `event_types` also requires the permission `billing:read`, if the webhook has or gets `alert.triggered` or `invoice.held`."), s.updateWebhook)
	huma.Register(s.api, remove("delete-webhook", "/v1/webhooks/{id}", HooksWrite, "Delete a webhook and its deliveries",
		"Messages that were not delivered yet are discarded."), s.deleteWebhook)
	huma.Register(s.api, created(post("rotate-webhook-secret", "/v1/webhooks/{id}/rotate-secret", HooksWrite, "Rotate a webhook's secret",
		"Returns the new secret. Messages are signed with both secrets for `overlap_seconds`.")), s.rotateWebhookSecret)
	huma.Register(s.api, accepted(post("test-webhook", "/v1/webhooks/{id}/test", HooksWrite, "Send a test message to a webhook",
		"Sends a message of type `webhook.test`, whatever the webhook's `event_types` are.\n\n"+
			sendsOfWebhook)), s.testWebhook)
	huma.Register(s.api, get("list-deliveries", "/v1/webhooks/{id}/deliveries", HooksRead, "List a webhook's deliveries",
		"Deliveries are listed newest first."), s.listDeliveries)
	huma.Register(s.api, get("get-delivery", "/v1/webhooks/{id}/deliveries/{message}", HooksRead, "Get a delivery with its body and attempts",
		"Returns the body as it was signed and sent, and every attempt with its response.\n\n"+ofCharges), s.getDelivery)
	huma.Register(s.api, accepted(post("redeliver", "/v1/webhooks/{id}/deliveries/{message}/redeliver", HooksWrite, "Redeliver a message",
		"Sends the message again with the same id and body, so that the receiver can recognize a repeat.\n\n"+
			sendsOfWebhook+"\n\n"+ofCharges)), s.redeliver)

	huma.Register(s.api, get("get-audit-log", "/v1/audit-log", KeysManage, "List the audit log",
		"Entries are listed newest first. Entries contain the actor, the action, the changed fields, the time and the address.\n\n"+
			"- The log also records refused requests, exports of events, requested syncs and tests of webhooks.\n"+
			"- Each process records at most 20 refusals of a kind in a minute, and then the number of further refusals."), s.auditLog)

	huma.Register(s.api, post("log-in", "/v1/auth/login", Public, "Sign in with e-mail and password",
		"If the e-mail belongs to several tenants and `tenant_id` is omitted, the response lists the tenants and contains no token."), s.logIn)
	huma.Register(s.api, post("find-invitation", "/v1/invitations/find", Public, "Get an invitation by its token",
		"Shows the tenant, the role and the expiry before the invitation is accepted. The token is the credential."), s.findInvitation)
	huma.Register(s.api, post("accept-invitation", "/v1/invitations/accept", Public, "Accept an invitation with a password",
		"Creates the member, or sets the password of the member who is being reset. Signs the member in."), s.acceptInvitation)
	huma.Register(s.api, post("accept-invitation-at-issuer", "/v1/invitations/accept-at-issuer", Public, "Accept an invitation at the tenant's OIDC issuer",
		"Returns the URL at which the browser signs in. The account that signs in there becomes the member's account."), s.acceptAtIssuer)
	huma.Register(s.api, accepted(post("ask-for-reset", "/v1/password-resets", Public, "Ask for a password reset",
		"Sends a `password_reset.requested` message to the webhooks of every tenant that has a member with this e-mail, at most every ten minutes. The response "+
			"is the same for an unknown e-mail.")), s.askForReset)
	huma.Register(s.api, post("log-out", "/v1/auth/logout", OwnSession, "Sign out",
		"Ends this session. The member's other sessions continue."), s.logOut)
	huma.Register(s.api, get("list-sessions", "/v1/auth/sessions", OwnSession, "List your sessions",
		"Lists your active sessions in this tenant, newest first."), s.listSessions)
	huma.Register(s.api, remove("end-session", "/v1/auth/sessions/{id}", OwnSession, "End one of your sessions",
		"The session is invalid on every replica as soon as the response is sent. You can end only your own sessions."), s.endSession)
	huma.Register(s.api, post("log-out-everywhere", "/v1/auth/logout-all", OwnSession, "Sign out everywhere",
		"Ends all your sessions in this tenant, including this one."), s.logOutEverywhere)
	huma.Register(s.api, get("get-session", "/v1/auth/session", OwnSession, "Get the current session",
		"Returns the tenant, the caller and the caller's permissions."), s.getSession)
	huma.Register(s.api, put("set-password", "/v1/auth/password", OwnSession, "Change your password",
		"Needs the current password. Returns 422 if the new password is easy to guess, and 409 if you sign in at the tenant's OIDC issuer."), s.setPassword)
	huma.Register(s.api, addedTo(writing(get("begin-oidc", beginOIDCPath, Public, "Begin signing in at the tenant's OIDC issuer",
		"Returns a page that names the issuer and links to it. The sign-in must finish in the same browser within ten minutes."))), s.beginOIDC)
	huma.Register(s.api, s.leadingOn(addedTo(writing(redirect(get("finish-oidc", callbackPath, Public, "Finish signing in at the tenant's OIDC issuer",
		"The issuer redirects the browser to this page. Each sign-in is accepted once, and only in the browser that began it."))))), s.finishOIDC)
	s.describeSignInPages()

	huma.Register(s.api, get("get-tenant", "/v1/tenant", TenantManage, "Get the tenant's settings",
		"Returns the time zone, the currency, the rules for late usage and invoice holds, the limits, and the rules for unknown and conflicting events."), s.getTenant)
	huma.Register(s.api, heavy(patch("update-tenant", "/v1/tenant", TenantManage, "Update the tenant's settings",
		"Updates the fields that the body contains and keeps the other fields. A new time zone or grace applies to billing periods that are not closed.\n\n"+
			howToConfirm)), s.updateTenant)
	huma.Register(s.api, get("list-members", "/v1/tenant/members", TenantManage, "List members",
		"Members are listed in the order in which they joined."), s.listMembers)
	huma.Register(s.api, created(post("create-member", "/v1/tenant/members", TenantManage, "Invite a person to become a member",
		"Returns a token, shown only once. The person becomes a member by accepting the invitation within seven days.\n\n"+
			"- Odometer sends no e-mail. Webhooks for `member.invited` receive a message, so that your service can send the link.\n"+
			"- Creating invitations, renewing invitations and resetting members share one limit: 20 a minute for each tenant.\n"+
			"- A tenant has at most 1,000 members and pending invitations. Beyond that the request returns 409.")), s.createMember)
	huma.Register(s.api, patch("update-member", "/v1/tenant/members/{id}", TenantManage, "Update a member's name or role",
		"You cannot grant a role with more permissions than yours. Only `make-owner` changes the owner."), s.updateMember)
	huma.Register(s.api, remove("remove-member", "/v1/tenant/members/{id}", TenantManage, "Remove a member",
		"If the member created credentials that are still valid, `keys` must be `revoke` or `hand_over`. Without `keys`, the request returns 409."), s.removeMember)
	huma.Register(s.api, post("make-owner", "/v1/tenant/members/{id}/make-owner", TenantManage, "Make a member the owner",
		"The previous owner becomes an admin."), s.makeOwner)
	huma.Register(s.api, post("reset-member", "/v1/tenant/members/{id}/reset", TenantManage, "Invite a member to set a new password",
		"Nothing changes until the invitation is accepted. Then the member's sessions in this tenant end. The member's password in other tenants does "+
			"not change.\n\n"+
			"- Only the owner can reset the owner.\n"+
			"- Resets count toward the limit of 20 invitations a minute."), s.resetMember)
	huma.Register(s.api, get("list-invitations", "/v1/tenant/invitations", TenantManage, "List pending invitations",
		"Lists invitations that are not accepted, revoked or expired."), s.listInvitations)
	huma.Register(s.api, post("renew-invitation", "/v1/tenant/invitations/{id}/renew", TenantManage, "Create a new token for an invitation",
		"The previous token becomes invalid. The new token is valid for seven days. Renewals count toward the limit of 20 invitations a minute."), s.renewInvitation)
	huma.Register(s.api, remove("revoke-invitation", "/v1/tenant/invitations/{id}", TenantManage, "Revoke an invitation",
		"The link is invalid as soon as the response is sent."), s.revokeInvitation)
	huma.Register(s.api, get("get-oidc", "/v1/tenant/oidc", TenantManage, "Get the tenant's OIDC issuer",
		"Without an issuer, `configured` is false. `redirect_uri` is the address to register at the issuer before you save the issuer."), s.getOIDC)
	huma.Register(s.api, put("save-oidc", "/v1/tenant/oidc", TenantManage, "Save the tenant's OIDC issuer",
		"The settings are tested at the issuer first."), s.saveOIDC)
	huma.Register(s.api, remove("delete-oidc", "/v1/tenant/oidc", TenantManage, "Delete the tenant's OIDC issuer",
		"Afterwards, a member without a password cannot sign in until you reset the member's password or save another issuer."), s.deleteOIDC)

	huma.Register(s.api, get("get-health", "/healthz", Public, "Check that the process runs",
		"Checks only that the process responds, not the database or Temporal."), s.health)
	huma.Register(s.api, get("get-readiness", "/readyz", Public, "Check that requests can be served",
		"Checks run at most once a second. Returns 503 in these cases:\n\n"+
			"- Events cannot be stored, or usage cannot be read.\n"+
			"- The clocks of this process and of the database differ by more than 5 seconds.\n\n"+
			"If only Temporal is unavailable, the status is 200 and `temporal` shows it: ingestion and queries still work."), s.readiness)

	s.serveDashboard()
	s.mux.HandleFunc("GET /errors/{code}", s.explainError)
	s.mux.HandleFunc("GET /docs", s.docs)
	s.mux.HandleFunc("GET /docs/docs.js", s.docsScript)
	s.mux.HandleFunc("GET /docs/{file}", s.docsAsset)
	s.describeRefusals()
	s.describeEmptyParameters()
	s.messages()
	s.describeFields()
	adaptToGenerators(s.api.OpenAPI())
	s.decimals = decimalsOf(s.api.OpenAPI())
	documents := s.documents()
	s.mux.HandleFunc("GET /openapi.json", s.serveDocument(documents.v31))
	s.mux.HandleFunc("GET /openapi-3.0.json", s.serveDocument(documents.v30))
	s.mux.HandleFunc("GET /openapi-strings.json", s.serveDocument(documents.strings))
}

const aboutExports = "The `Link` header of a page in JSON Lines or CSV contains the next page.\n\n" +
	"- In CSV, a `'` is placed before text that a spreadsheet would read as a formula.\n" +
	"- Every export is recorded in the audit log."

func get(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodGet, id, path, permission, summary, description)
}

func post(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPost, id, path, permission, summary, description)
}

func put(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPut, id, path, permission, summary, description)
}

func patch(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodPatch, id, path, permission, summary, description)
}

func remove(id, path string, permission Permission, summary, description string) huma.Operation {
	return operation(http.MethodDelete, id, path, permission, summary, description)
}

func operation(method, id, path string, permission Permission, summary, description string) huma.Operation {
	op := huma.Operation{
		Method: method, OperationID: id, Path: path, Summary: summary, Description: description, DefaultStatus: http.StatusOK,
		Tags:     []string{tag(path)},
		Metadata: map[string]any{"permission": permission},
		// The permission is documented where readers of the document look for it.
		Extensions: map[string]any{"x-permission": permission},
	}
	op.Security = noCredential
	op.MaxBodyBytes = smallBody
	if permission != Public {
		op.MaxBodyBytes = 0 // the framework's, 1 MiB
		op.Extensions["x-rate-limit"] = "calls"
		op.Security = []map[string][]string{{"apiKey": {}}, {"hmac": {}}, {"session": {}}, {"cookie": {}}}
	}
	return op
}

// tag groups operations by their noun: /v1/meters/{slug} belongs to meters.
func tag(path string) string {
	noun, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return "health"
	}
	noun, _, _ = strings.Cut(noun, "/")
	return noun
}

func redirect(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusFound
	return op
}

func created(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusCreated
	return op
}

func accepted(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusAccepted
	return op
}

// documents are the OpenAPI document, its 3.0 form, which takes three times as
// long to make, and its form with decimals as strings. Each is made at the first
// request for it, and kept.
type documents struct{ v31, v30, strings func() ([]byte, error) }

func (s *server) documents() documents {
	whole := sync.OnceValues(func() (huma.OpenAPI, error) {
		whole := *s.api.OpenAPI()
		markAllNames(&whole)
		return whole, exemplify(&whole)
	})
	return documents{
		v31: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			return document.MarshalJSON()
		}),
		v30: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			document.Webhooks = nil // came with 3.1
			return document.Downgrade()
		}),
		strings: sync.OnceValues(func() ([]byte, error) {
			document, err := whole()
			if err != nil {
				return nil, err
			}
			return stringsDocument(&document, s.decimals)
		}),
	}
}

// serveDocument answers with a document that never changes while the process runs.
func (s *server) serveDocument(document func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := document()
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/openapi+json")
		if _, err := w.Write(text); err != nil {
			exchangeOf(r.Context()).err = err
		}
	}
}

//go:generate sh -c "go run ../cmd/odometer openapi >openapi.json.new && mv openapi.json.new openapi.json"
//go:generate sh -c "go run ../cmd/odometer openapi -3.0 >openapi-3.0.json.new && mv openapi-3.0.json.new openapi-3.0.json"

// Documents returns the OpenAPI document of an API with these providers, and
// its 3.0 form, indented.
func Documents(kinds providers.Registry) (v31, v30 []byte, err error) {
	d := newServer(Deps{Providers: kinds}).documents()
	if v31, err = d.v31(); err != nil {
		return nil, nil, err
	}
	v30, err = d.v30()
	return indented(v31), indented(v30), err
}

// StringsDocument returns the OpenAPI document in which the decimals of
// responses are strings, indented.
func StringsDocument(kinds providers.Registry) ([]byte, error) {
	text, err := newServer(Deps{Providers: kinds}).documents().strings()
	return indented(text), err
}

func indented(text []byte) []byte {
	var pretty bytes.Buffer
	if json.Indent(&pretty, text, "", "  ") != nil {
		return text
	}
	pretty.WriteByte('\n')
	return pretty.Bytes()
}
