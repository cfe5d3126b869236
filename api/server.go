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
	heavy         *db.Shares[metering.TenantID] // operations that read all customers of a tenant
	failures      *failures
	refusals      refusals
	listings      listings
	lastUnrated   *lru.Cache[metering.TenantID, keptUnrated]
	firstKept     *lru.Cache[customerName, firstStart]
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
	s.heavy = db.NewShares[metering.TenantID](maxHeavy)
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
	if s.firstKept, err = lru.New[customerName, firstStart](maxFirstStarts); err != nil {
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
		"In the order in which they were made. Archived ones are left out unless archived=true."), s.listCustomers)
	huma.Register(s.api, created(post("create-customer", "/v1/customers", CustomersWrite, "Create a customer",
		"409 where the external_id is in use. An event of an unknown customer makes one too, unless the tenant is strict. Whom a provider charges "+
			"needs billing:write.")), s.createCustomer)
	huma.Register(s.api, get("get-customer-by-external-id", "/v1/customers/by-external-id", CustomersRead, "Get a customer by an external ID that does not fit in a path",
		"For external IDs that hold a slash or are ., .., by-id or by-external-id, which no path can name. In the paths of other operations, by-external-id stands for "+
			"the external_id of the query too: PUT /v1/customers/by-external-id/plan?external_id=a%2Fb."), s.customerByExternalID)
	huma.Register(s.api, get("get-customer-by-id", "/v1/customers/by-id", CustomersRead, "Get a customer by its id",
		"By the id that this API has given it, such as cus_12, also of one whose personal data was erased."), s.customerByID)
	huma.Register(s.api, get("get-customer", "/v1/customers/{external_id}", CustomersRead, "Get a customer",
		"By the external_id under which events name it."), s.getCustomer)
	huma.Register(s.api, put("upsert-customer", "/v1/customers/{external_id}/upsert", CustomersWrite, "Create or update a customer",
		"What is absent stays as it is."), s.upsertCustomer)
	s.describeStatus("/v1/customers/{external_id}/upsert", "201", "Created")

	huma.Register(s.api, accepted(post("erase-customer", "/v1/customers/{external_id}/erase", CustomersErase, "Erase a customer's personal data",
		"External ID, name, metadata, and what its events say are replaced by digests, everywhere; totals, bills and reports stay. The customer is "+
			"erased-<number> from then on, and takes no more events. 409, naming them, while something of it is not billed, on its way or held.")), s.eraseCustomer)
	s.archives()
	huma.Register(s.api, get("list-meters", "/v1/meters", MetersRead, "List meters",
		"In the order in which they were made. Archived ones are left out unless archived=true."), s.listMeters)
	huma.Register(s.api, created(post("create-meter", "/v1/meters", MetersWrite, "Create a meter",
		"It counts events of its type from now on, and a workflow counts the stored ones: until that is done its status is backfilling, and its own "+
			"usage is answered with 503.")), s.createMeter)
	huma.Register(s.api, get("get-meter", "/v1/meters/{slug}", MetersRead, "Get a meter",
		"With how far the counting of its past has come, while it is backfilling."), s.getMeter)
	huma.Register(s.api, heavy(patch("update-meter", "/v1/meters/{slug}", MetersWrite, "Update a meter",
		"Another aggregation or group_by is counted anew from the stored events; reads and billing stay with the present one until that is complete. "+
			"Closed periods keep what they came to. If it changes the charge of a begun billing period, "+howToConfirm)), s.updateMeter)
	huma.Register(s.api, get("list-pricing", "/v1/pricing", PricingRead, "List the prices of meters",
		"Of the meters that have one of their own, or in a plan, by id, archived ones too."), s.listPricing)
	huma.Register(s.api, get("get-pricing", "/v1/meters/{slug}/pricing", PricingRead, "Get a meter's prices",
		"The price that holds now and all versions: past, present and scheduled ones."), s.getPricing)
	huma.Register(s.api, heavy(put("set-pricing", "/v1/meters/{slug}/pricing", PricingWrite, "Set a meter's price",
		"A new version. Without effective_from it begins with the next billing period, and the first one at the beginning. "+
			"If it changes the charge of a begun billing period, "+howToConfirm)), s.setPricing)
	huma.Register(s.api, heavy(post("preview-pricing", "/v1/meters/{slug}/pricing/preview", PricingWrite, "Preview what a price would change",
		"Nothing is set. It takes the body that sets a price.")), s.previewPricing)
	huma.Register(s.api, remove("withdraw-pricing", "/v1/meters/{slug}/pricing/{version}", PricingWrite, "Withdraw a meter's price that has not begun",
		"409 where it has."), s.withdrawPricing)
	huma.Register(s.api, created(post("create-plan", "/v1/plans", PricingWrite, "Create a plan",
		"A plan has prices of its own for some meters; for others the meters' own prices hold.")), s.createPlan)
	huma.Register(s.api, get("list-plans", "/v1/plans", PricingRead, "List plans",
		"In the order in which they were made. Archived ones are left out unless archived=true."), s.listPlans)
	huma.Register(s.api, get("get-plan", "/v1/plans/{slug}", PricingRead, "Get a plan",
		"By its slug."), s.getPlan)
	huma.Register(s.api, get("get-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingRead, "Get a meter's prices in a plan",
		"The price that holds now in this plan, and all versions. Where there is none the meter's own price holds."), s.getPlanPricing)
	huma.Register(s.api, heavy(put("set-plan-pricing", "/v1/plans/{slug}/pricing/{meter}", PricingWrite, "Set a meter's price in a plan",
		"A new version in this plan, with the rules of a meter's own prices.")), s.setPlanPricing)
	huma.Register(s.api, heavy(post("preview-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/preview", PricingWrite, "Preview what a price in a plan would change",
		"Nothing is set. It takes the body that sets a price.")), s.previewPlanPricing)
	huma.Register(s.api, remove("withdraw-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/{version}", PricingWrite, "Withdraw a meter's price in a plan that has not begun",
		"409 where it has."), s.withdrawPlanPricing)
	huma.Register(s.api, get("get-customer-plan", "/v1/customers/{external_id}/plan", PricingRead, "Get a customer's plan",
		"The plan that charges the current billing period, and every assignment in the order in which they hold."), s.getCustomerPlan)
	huma.Register(s.api, put("assign-plan", "/v1/customers/{external_id}/plan", PricingWrite, "Assign a plan to a customer",
		"From effective_from on. A meter's price in a plan comes before its own; a billing period is charged by what holds at its start. "+
			"If it changes the charge of a begun billing period, "+howToConfirm), s.assignPlan)

	huma.Register(s.api, limited(post("ingest-event", eventsPath, EventsWrite, "Send one event",
		"What is answered as accepted is stored and in every total. A repeat with the same idempotency_key is a duplicate and adds nothing.")), s.ingestEvent)
	huma.Register(s.api, limited(post("ingest-events", eventsPath+"/batch", EventsWrite, "Send up to 1,000 events",
		"Each event is judged by itself: some may be rejected while others are accepted, and the answer names them by their place. The accepted ones "+
			"are stored in one transaction.")), s.ingestEvents)
	s.describeEvents()
	huma.Register(s.api, get("list-events", eventsPath, EventsRead, "List events",
		"Newest first by their timestamps, those of the last 24 hours, with idempotency_key all that are kept, or those from start, each with the meters in whose usage it is. "+
			"Events that were rejected are not stored. A page is looked for some two seconds: it may have fewer events than fit, or none, and a next_page_token "+
			"that goes on from searched_until. Who lists is in the audit log, once an hour for each customer, or for all."), s.listEvents)
	huma.Register(s.api, get("get-event-counts", eventsPath+"/counts", EventsRead, "Get how many events were accepted, repeated and rejected",
		"Accepted, duplicate, conflicting and rejected ones by hour or day, for operators; rejected events are not stored and are counted here alone. Each process of the API "+
			"writes its counts down every five seconds and loses those that it has not written when it is killed, so nothing is billed by them: usage is what the events come to. "+
			"They are kept for 90 days. Requests that were refused as a whole are not in them."), s.eventCounts)
	s.conflicts()

	huma.Register(s.api, grouping(get("get-usage", "/v1/usage", UsageRead, "Get a meter's usage as a time series",
		"Any parameter `group.<property>=value`, such as `group.model=large`, keeps the windows of that value of a property that the meter groups by. "+
			"A value that is a JSON number, string, true, false or null selects that value: `0` the number, `\"0\"` the string. Any other text selects the string. "+
			"An event without the property counts in null. Each group of an answer has the filter that selects it.")), s.usage)
	huma.Register(s.api, get("get-usage-summary", "/v1/usage/summary", UsageRead, "Get the usage of every meter",
		"One customer's usage of each meter between start and end, this calendar month by default."), s.usageSummary)
	huma.Register(s.api, get("get-usage-total", "/v1/usage/total", UsageRead, "Get usage as one number",
		"Of one meter, or, without meter, of all meters of the customer added up, whatever their units are; meters names them where they are several. A meter whose past is being counted is "+
			"left out and named."), s.usageTotal)
	huma.Register(s.api, heavy(get("get-daily-usage", "/v1/usage/daily", UsageRead, "Get the usage of every meter by day, of all customers",
		"Days of the tenant's time zone up to today, at most 92. Days without usage are left out.")), s.usageDaily)
	huma.Register(s.api, get("get-usage-comparison", "/v1/usage/comparison", UsageRead, "Compare usage with the month before",
		"The customer's usage of the month so far beside that of the month before, by meter."), s.usageComparison)
	huma.Register(s.api, get("export-usage", exportPath, EventsRead, "Export a customer's events",
		"As JSON or CSV, oldest first, in pages that the answer's Link header leads through. CSV marks cells that a spreadsheet would take for a "+
			"formula. Who exports is in the audit log."), s.exportUsage)
	s.describeExport()

	huma.Register(s.api, get("preview-billing", "/v1/billing/preview", BillingRead, "Preview the charges of the current billing period",
		"What the period would be billed at if it ended now, with the working of each line. Nothing is reported. What an earlier report has billed "+
			"is not taken off."), s.previewBilling)
	huma.Register(s.api, get("list-connectable-providers", "/v1/billing/providers", BillingRead, "List the providers that can be connected",
		"A provider that sends events is saved with the signing secret of an endpoint there. The endpoint's URL and events are "+
			"here before anything is saved."), s.listConnectable)
	huma.Register(s.api, post("make-provider-secret", "/v1/billing/providers/{type}/secret", BillingWrite, "Make a secret for a provider that is not saved yet",
		"For a receiver that verifies what it is sent, the ping of saving too: give it the secret, then save the provider with it. 422 where the "+
			"provider makes its secrets itself."), s.makeProviderSecret)
	huma.Register(s.api, get("get-billing-provider", "/v1/billing/provider", BillingRead, "Get the billing provider",
		"Without its secrets, of which the last four characters are shown."), s.getProvider)
	huma.Register(s.api, s.settingsBody(put("save-billing-provider", "/v1/billing/provider", BillingWrite, "Save the billing provider",
		"The settings are tried at the provider first. A secret that is absent stays as it was saved; the first time it is needed.")), s.saveProvider)
	s.describeProvider()
	huma.Register(s.api, remove("delete-billing-provider", "/v1/billing/provider", BillingWrite, "Delete the billing provider",
		"Nothing is reported from then on. What was never sent there is withdrawn, and what may have arrived is in doubt and counts as billed "+
			"there until it is resolved. Usage is counted on; the provider that is saved next is reported what no other has billed of open "+
			"periods. A period that closes while there is no provider is billed by none. 409, naming them, while a report is being sent, a closed "+
			"period is not yet billed in full, or an invoice is held."), s.deleteProvider)
	huma.Register(s.api, s.providerEvents(post("receive-provider-event", providerEventsPath, Public, "Receive an event from a billing provider",
		"For the provider alone, whose signature is the credential. 200 says that the event is kept and will be handled, once however often it "+
			"comes. Events of other accounts, and of the other mode, are answered with 200 and forgotten.")), s.providerEvent)
	s.describeProviderEvent()
	huma.Register(s.api, post("sync-billing", "/v1/billing/sync", BillingWrite, "Sync a customer with the billing provider",
		"Answered with 202: a workflow reports what the provider does not know yet, exactly once, also where it is killed and asked again. GET "+
			"/v1/billing/syncs/{id} says how it goes."), s.syncBilling)
	s.describeStatus("/v1/billing/sync", "202", "Still running: read status_url")
	huma.Register(s.api, get("get-billing-sync", "/v1/billing/syncs/{id}", BillingRead, "Get a sync",
		"How far it has come: what was sent and answered, attempts, the last error, when it is tried next, and whether it is paused."), s.getSync)
	s.steerSyncs()
	huma.Register(s.api, post("resolve-report", "/v1/billing/reports/{id}/resolve", BillingWrite, "Resolve a report in doubt",
		"It counts as billed where it went until then. Once it is rejected, the customer's next sync reports what it held."), s.resolveReport)
	huma.Register(s.api, get("list-billing-syncs", "/v1/billing/syncs", BillingRead, "List syncs",
		"Newest first. status narrows them, and so does customer."), s.listSyncs)
	huma.Register(s.api, get("list-billing-periods", "/v1/billing/periods", BillingRead, "List a customer's billing periods",
		"Newest first. A closed period never changes: usage that comes later is in its late usage, and is billed with another one."), s.listPeriods)
	huma.Register(s.api, get("get-statement", "/v1/billing/statements/{period}", BillingRead, "Get the bill of a billing period",
		"Every line with its working, the adjustments that the period carries, totals by currency, and a page of the reports by which it is "+
			"billed. A period has an id once it is stored, with the first sync in it or after it."), s.getStatement)
	huma.Register(s.api, get("explain-billing", "/v1/billing/explain", BillingRead, "Get the working of what a meter comes to in a billing period",
		"Step by step, from the count of events to the amount, which is the last step. The running period is explained also where it has no id yet."), s.explain)
	huma.Register(s.api, heavy(get("get-revenue", "/v1/billing/revenue", BillingRead, "Get billed and estimated revenue by month and currency",
		"By calendar month of the tenant's time zone. What is billed is what was reported and taken; what is estimated is the rest. Invoices at the "+
			"provider may differ.")), s.revenue)
	huma.Register(s.api, get("list-discrepancies", "/v1/billing/discrepancies", BillingRead, "List discrepancies between totals and events",
		"Where the daily audit found totals and events to disagree. The list is empty unless something is wrong with the service."), s.listDiscrepancies)
	s.attention()
	s.unrated()
	s.reconciliations()
	s.holds()
	huma.Register(s.api, get("get-auto-sync", "/v1/billing/auto-sync", BillingRead, "Get the Auto-Sync settings",
		"When customers are synced by themselves, and the last and the next runs."), s.getAutoSync)
	huma.Register(s.api, put("save-auto-sync", "/v1/billing/auto-sync", BillingWrite, "Save the Auto-Sync settings",
		"It takes the place of what was saved before, and the schedule is changed at once; while Temporal is away it is changed as soon as that answers."), s.saveAutoSync)
	huma.Register(s.api, accepted(post("trigger-auto-sync", "/v1/billing/auto-sync/trigger", BillingWrite, "Run Auto-Sync now",
		"Syncs every customer who is out of sync.")), s.triggerAutoSync)

	huma.Register(s.api, created(post("create-api-key", "/v1/api-keys", KeysManage, "Create an API key",
		"The answer is the only one that shows the key. Nobody makes a key that may do more than themselves. A tenant has at most 1,000 keys that "+
			"are live: 409 beyond that.")), s.createAPIKey)
	huma.Register(s.api, get("list-api-keys", "/v1/api-keys", KeysManage, "List API keys",
		"Newest first, those that are revoked or have expired too. The keys themselves are not kept and not shown."), s.listAPIKeys)
	huma.Register(s.api, post("revoke-api-key", "/v1/api-keys/{id}/revoke", KeysManage, "Revoke an API key",
		"The key is invalid from the moment of the answer, on every replica, and a rotation that it is part of ends. Revoking again changes nothing."), s.revokeAPIKey)
	huma.Register(s.api, created(post("rotate-api-key", "/v1/api-keys/{id}/rotate", KeysManage, "Rotate an API key",
		"The answer shows a successor of the same name, scope and expiry. The old key is revoked at once, or stays valid for overlap_seconds. 409 "+
			"where it is revoked or has expired.")), s.rotateAPIKey)

	huma.Register(s.api, created(post("create-hmac-secret", "/v1/hmac-secrets", KeysManage, "Create an HMAC secret",
		"The answer is the only one that shows the secret. Two are live at a time at most: 409 beyond that. With signatures v2 nothing else is "+
			"accepted of it.")), s.createHMACSecret)
	huma.Register(s.api, get("list-hmac-secrets", "/v1/hmac-secrets", KeysManage, "List HMAC secrets",
		"Newest first, those that are revoked or have expired too. The secrets themselves are not shown."), s.listHMACSecrets)
	huma.Register(s.api, post("revoke-hmac-secret", "/v1/hmac-secrets/{id}/revoke", KeysManage, "Revoke an HMAC secret",
		"Signatures by it are invalid from the moment of the answer, on every replica. Revoking again changes nothing."), s.revokeHMACSecret)
	huma.Register(s.api, created(post("rotate-hmac-secret", "/v1/hmac-secrets/{id}/rotate", KeysManage, "Rotate an HMAC secret",
		"The answer shows a successor of the same name, scope, signatures and expiry. The old secret stays valid for overlap_seconds, a day by "+
			"default.")), s.rotateHMACSecret)

	huma.Register(s.api, created(post("create-webhook", "/v1/webhooks", HooksWrite, "Create a webhook",
		"It receives messages of its event types. The secret that they are signed with is shown once.")), s.createWebhook)
	huma.Register(s.api, get("list-webhooks", "/v1/webhooks", HooksRead, "List webhooks",
		"In the order in which they were made, without their secrets."), s.listWebhooks)
	huma.Register(s.api, get("get-webhook", "/v1/webhooks/{id}", HooksRead, "Get a webhook",
		"Without its secret."), s.getWebhook)
	huma.Register(s.api, patch("update-webhook", "/v1/webhooks/{id}", HooksWrite, "Update, disable or enable a webhook",
		"What is absent stays as it is. One that is disabled is sent nothing that happens meanwhile."), s.updateWebhook)
	huma.Register(s.api, remove("delete-webhook", "/v1/webhooks/{id}", HooksWrite, "Delete a webhook and its deliveries",
		"What was not delivered to it is not delivered any more."), s.deleteWebhook)
	huma.Register(s.api, created(post("rotate-webhook-secret", "/v1/webhooks/{id}/rotate-secret", HooksWrite, "Rotate a webhook's secret",
		"The answer shows the new secret. Messages are signed with both for overlap_seconds.")), s.rotateWebhookSecret)
	huma.Register(s.api, accepted(post("test-webhook", "/v1/webhooks/{id}/test", HooksWrite, "Send a test message to a webhook",
		"A message of type webhook.test. Tests and redeliveries of a webhook together: 10 a minute; of all webhooks of a tenant: 60.")), s.testWebhook)
	huma.Register(s.api, get("list-deliveries", "/v1/webhooks/{id}/deliveries", HooksRead, "List a webhook's deliveries",
		"Newest first."), s.listDeliveries)
	huma.Register(s.api, get("get-delivery", "/v1/webhooks/{id}/deliveries/{message}", HooksRead, "Get a delivery with its body and attempts",
		"The body as it was signed and sent, and every attempt with its answer."), s.getDelivery)
	huma.Register(s.api, accepted(post("redeliver", "/v1/webhooks/{id}/deliveries/{message}/redeliver", HooksWrite, "Redeliver a message",
		"The message is sent again at once with the same id and body, so that its receiver can tell that it has it. "+
			"Tests and redeliveries of a webhook together: 10 a minute; of all webhooks of a tenant: 60.")), s.redeliver)

	huma.Register(s.api, get("get-audit-log", "/v1/audit-log", KeysManage, "List the audit log",
		"Who changed what, when, from where and from what to what, newest first; who was refused, and who has exported events, asked for a sync or tested a "+
			"webhook. Of refusals a tenant's log has 20 of a kind a minute, and then a count of the rest."), s.auditLog)

	huma.Register(s.api, post("log-in", "/v1/auth/login", Public, "Sign in with e-mail and password",
		"Who is a member of several tenants, and does not say which, is answered with the list of them and is not signed in."), s.logIn)
	huma.Register(s.api, post("find-invitation", "/v1/invitations/find", Public, "Get what a token invites to",
		"For the page of the link, before somebody accepts. Whoever holds the token may know it."), s.findInvitation)
	huma.Register(s.api, post("accept-invitation", "/v1/invitations/accept", Public, "Accept an invitation with a password",
		"It makes a member, or gives the member whom it was made for this password, and signs them in."), s.acceptInvitation)
	huma.Register(s.api, post("accept-invitation-at-issuer", "/v1/invitations/accept-at-issuer", Public, "Accept an invitation at the tenant's OIDC issuer",
		"It answers with where the browser goes to sign in. The account with which it comes back becomes the member's."), s.acceptAtIssuer)
	huma.Register(s.api, accepted(post("ask-for-reset", "/v1/password-resets", Public, "Ask for another password",
		"Webhooks of event type member.reset_asked receive a message, of every tenant of which the e-mail is a member, at most every ten minutes. "+
			"The answer is the same whether or not there are any.")), s.askForReset)
	huma.Register(s.api, post("log-out", "/v1/auth/logout", OwnSession, "Sign out",
		"Ends this session. Other sessions of the same person go on."), s.logOut)
	huma.Register(s.api, get("list-sessions", "/v1/auth/sessions", OwnSession, "List one's own sessions",
		"Those of the member who asks that have not ended, in this tenant, the newest first."), s.listSessions)
	huma.Register(s.api, remove("end-session", "/v1/auth/sessions/{id}", OwnSession, "End one of one's own sessions",
		"It is invalid from then on, on every replica. Nobody ends another member's this way."), s.endSession)
	huma.Register(s.api, post("log-out-everywhere", "/v1/auth/logout-all", OwnSession, "Sign out everywhere",
		"Ends all sessions of the member at this tenant, this one included."), s.logOutEverywhere)
	huma.Register(s.api, get("get-session", "/v1/auth/session", OwnSession, "Get the current session",
		"The tenant, who asks, and what they may do."), s.getSession)
	huma.Register(s.api, put("set-password", "/v1/auth/password", OwnSession, "Change your password",
		"It needs the present one. 422 where the new one is easy to guess, 409 for a member who signs in at the tenant's OIDC issuer."), s.setPassword)
	huma.Register(s.api, addedTo(writing(get("begin-oidc", beginOIDCPath, Public, "Begin signing in at the tenant's OIDC issuer",
		"A page that names the issuer and leads there. The sign-in belongs to the browser that has opened it, for ten minutes."))), s.beginOIDC)
	huma.Register(s.api, s.leadingOn(addedTo(writing(redirect(get("finish-oidc", callbackPath, Public, "Finish signing in at the tenant's OIDC issuer",
		"The issuer sends the browser here. It is accepted only in the browser that began the sign-in, and once."))))), s.finishOIDC)
	s.describeSignInPages()

	huma.Register(s.api, get("get-tenant", "/v1/tenant", TenantManage, "Get the tenant's settings",
		"Time zone, currency, grace, late policy, holds of invoices, limits, and whether unknown customers, event types and fields, and conflicts of idempotency keys, are rejected."), s.getTenant)
	huma.Register(s.api, heavy(patch("update-tenant", "/v1/tenant", TenantManage, "Update the tenant's settings",
		"What is absent stays as it is. Another time zone or grace holds for periods that are not closed. If another time zone changes the charge of a begun "+
			"billing period, "+howToConfirm)), s.updateTenant)
	huma.Register(s.api, get("list-members", "/v1/tenant/members", TenantManage, "List members",
		"In the order in which they joined."), s.listMembers)
	huma.Register(s.api, created(post("create-member", "/v1/tenant/members", TenantManage, "Invite somebody to become a member",
		"They are a member once they accept, within seven days, with the token that is shown once. A webhook of event type member.invited "+
			"receives a message, so that somebody mails a link. A tenant makes, renews and resets at most 20 invitations a minute.")), s.createMember)
	huma.Register(s.api, patch("update-member", "/v1/tenant/members/{id}", TenantManage, "Update a member's name or role",
		"Nobody gives a role that may do more than their own. The owner's role is handed over by make-owner alone."), s.updateMember)
	huma.Register(s.api, remove("remove-member", "/v1/tenant/members/{id}", TenantManage, "Remove a member",
		"409 where credentials that the member has made are live, unless keys says what becomes of them."), s.removeMember)
	huma.Register(s.api, post("make-owner", "/v1/tenant/members/{id}/make-owner", TenantManage, "Make a member the owner",
		"The owner before becomes an admin."), s.makeOwner)
	huma.Register(s.api, post("reset-member", "/v1/tenant/members/{id}/reset", TenantManage, "Invite a member to choose another password",
		"The member, and their password in other tenants, stay as they are until the invitation is accepted; then their sessions in this "+
			"tenant end. The owner's is made by the owner alone. It counts in the limit of create-member."), s.resetMember)
	huma.Register(s.api, get("list-invitations", "/v1/tenant/invitations", TenantManage, "List pending invitations",
		"Those that were neither accepted nor revoked and have not expired."), s.listInvitations)
	huma.Register(s.api, post("renew-invitation", "/v1/tenant/invitations/{id}/renew", TenantManage, "Make another token for an invitation",
		"The token before is no longer valid, and it can be accepted for seven days again. It counts in the limit of create-member."), s.renewInvitation)
	huma.Register(s.api, remove("revoke-invitation", "/v1/tenant/invitations/{id}", TenantManage, "Revoke an invitation",
		"Its link is worth nothing from the moment of the answer."), s.revokeInvitation)
	huma.Register(s.api, get("get-oidc", "/v1/tenant/oidc", TenantManage, "Get the tenant's OIDC issuer",
		"Without one the answer says `configured: false`, and what to register at an issuer before it is saved."), s.getOIDC)
	huma.Register(s.api, put("save-oidc", "/v1/tenant/oidc", TenantManage, "Save the tenant's OIDC issuer",
		"The settings are tried at the issuer first."), s.saveOIDC)
	huma.Register(s.api, remove("delete-oidc", "/v1/tenant/oidc", TenantManage, "Delete the tenant's OIDC issuer",
		"Members who have no password can sign in no more until they are given one, or another issuer is saved."), s.deleteOIDC)

	huma.Register(s.api, get("get-health", "/healthz", Public, "Check that the process runs",
		"Says only that the process answers: it asks neither the database nor Temporal."), s.health)
	huma.Register(s.api, get("get-readiness", "/readyz", Public, "Check that requests can be served",
		"503 if events cannot be stored or usage cannot be read, or if this process's clock and the database's differ by more than 5 seconds. The checks run once a second at most. "+
			"While Temporal is unavailable it is 200 and says so: ingest and queries go on without it."), s.readiness)

	s.serveDashboard()
	s.mux.HandleFunc("GET /errors/{code}", s.explainError)
	s.mux.HandleFunc("GET /docs", s.docs)
	s.mux.HandleFunc("GET /docs/docs.js", s.docsScript)
	s.mux.HandleFunc("GET /docs/{file}", s.docsAsset)
	s.describeRefusals()
	s.describeEmptyParameters()
	s.messages()
	adaptToGenerators(s.api.OpenAPI())
	s.decimals = decimalsOf(s.api.OpenAPI())
	documents := s.documents()
	s.mux.HandleFunc("GET /openapi.json", s.serveDocument(documents.v31))
	s.mux.HandleFunc("GET /openapi-3.0.json", s.serveDocument(documents.v30))
	s.mux.HandleFunc("GET /openapi-strings.json", s.serveDocument(documents.strings))
}

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
