// Package api is Odometer's HTTP interface: huma operations over net/http.
//
// It contains names, statuses, credentials, pages and problems of the HTTP interface. It contains no rules
// about usage or money (package metering) and no SQL (package db).
package api

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Deps contains the dependencies and settings of the API.
type Deps struct {
	Store          *db.DB
	Authentication *db.DB // has its own connections, so that authentication never waits for other queries; nil: Store
	Writer         *usage.Writer
	EventCounter   *usage.EventCounter
	Temporal       client.Client
	Guard          providers.Guard
	Providers      providers.Registry
	Keyring        seal.Keyring
	Keys           Keys
	Retention      metering.Retention
	Secret         []byte          // keys for tokens and hashes are derived from it
	BaseURL        string          // URL at which browsers reach the API
	WorkflowsURL   string          // list of runs in the Temporal UI; empty: not linked
	ErrorDocsBase  string          // URL prefix of the pages that explain error codes
	SyncWait       time.Duration   // maximum wait for a sync before the response; 0: 25 s
	Stopping       <-chan struct{} // closed when the process is about to stop, so that waiting requests end
	Redis          *redis.Client   // counts for all replicas; nil: each replica counts alone
	// FailuresPerMinute is the number of invalid credentials that an address can send; 0: 100.
	FailuresPerMinute int
	// MaxRequestsPerMinute bounds the requests with events that a tenant may set for itself; 0: 60,000.
	MaxRequestsPerMinute int
	CallsPerMinute       int            // per tenant, without requests with events; 0: 6,000
	TrustedProxies       []netip.Prefix // proxies with a trusted X-Forwarded-For
	BodyBytes            int64          // maximum memory for tenants' request bodies; 0: 33 MiB
	BodyTime             time.Duration  // for a body to arrive, plus a second per 16 KiB that have arrived; 0: 10 s
	AnswerTime           time.Duration  // for a client to accept a part of a response; 0: 30 s
	AnswersBytes         int64          // maximum memory for responses to tenants; 0: 16 MiB
	SearchTime           time.Duration  // maximum search time for a page of events; 0: 2 s
	Now                  func() time.Time
	ClockOffset          metering.ClockOffset // of Now; beyond metering.ClockLimit, writes are refused
	Log                  *slog.Logger
	Metrics              prometheus.Registerer
}

type server struct {
	Deps
	*people
	mux           *http.ServeMux
	screen        http.HandlerFunc // the dashboard's page
	api           huma.API
	decimals      map[string]map[string]*decimalPlan    // of responses, by operation and status
	apiKeys       *coalescer[string, *access.TenantKey] // by the hash of the key
	signers       *coalescer[metering.TenantID, access.Signers]
	uses          *coalescer[access.CredentialUse, struct{}]
	sweeps        *coalescer[struct{}, struct{}] // of request ids
	resets        *coalescer[string, struct{}]   // requested password resets, by e-mail
	claims        atomic.Int64                   // number of claimed request ids
	bodies        bodies
	refusedBodies *refusedBodies
	overloads     *overloads
	requests      *fair.Shares[metering.TenantID] // in progress
	exports       *fair.Shares[metering.TenantID]
	processors    *fair.Shares[metering.TenantID] // for large bodies
	answers       *fair.Shares[metering.TenantID] // bytes of responses in memory
	providerReads *fair.Shares[metering.TenantID] // of customers that are being linked
	reserver      *limits.Reserver
	heavy         heavyTurns // operations that read all customers of a tenant, and time series
	failures      *failures
	refusals      refusals
	listings      listings
	unratedKept   *boundedCache[metering.TenantID, []ledger.UnratedTotal]
	firstKept     *keptValues[string, time.Time] // the start of the first billing period, by external ID of the customer
	metersKept    *keptValues[struct{}, []catalog.DimensionMeter]
	termsKept     *keptValues[string, []billing.DimensionTerms] // by external ID of the customer
	failedSignIns *coalescer[refusedSignIn, struct{}]
	minutes       limiter
	pageKey       []byte
	requestKey    []byte // hashes requests with an Idempotency-Key
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
	deps.Authentication = cmp.Or(deps.Authentication, deps.Store)
	deps.CallsPerMinute = cmp.Or(deps.CallsPerMinute, defaultCalls)
	deps.MaxRequestsPerMinute = cmp.Or(deps.MaxRequestsPerMinute, metering.DefaultRequestsCeiling)
	deps.SearchTime = cmp.Or(deps.SearchTime, searchTime)
	confirmationKey, err := derive(deps.Secret, "confirmations")
	if err != nil {
		return nil, err
	}
	s := newServer(deps)
	s.pageKey, s.requestKey, s.confirmationKey = pageKey, requestKey, confirmationKey
	s.metrics = newMetrics(deps.Metrics)
	s.refusedBodies, s.overloads = newRefusedBodies(s.metrics.refused, deps.Log), &overloads{total: s.metrics.overloaded, log: deps.Log}
	s.bodies, s.requests = newBodies(deps, s.refusedBodies), fair.NewShares[metering.TenantID](maxRequests)
	s.exports, s.answers = fair.NewShares[metering.TenantID](maxExports), fair.NewShares[metering.TenantID](cmp.Or(deps.AnswersBytes, answersBytes))
	s.heavy, s.reserver = newHeavyTurns(runtime.GOMAXPROCS(0)), deps.Store.NewReserver(s.sharedNow)
	s.processors, s.providerReads = newProcessors(), fair.NewShares[metering.TenantID](maxProviderReads)
	if deps.Metrics != nil {
		deps.Metrics.MustRegister(checkMetrics{s})
	}
	s.apiKeys = &coalescer[string, *access.TenantKey]{run: readCredentials(deps.Authentication.Credentials.ByHash), timeout: credentialTimeout}
	s.signers = &coalescer[metering.TenantID, access.Signers]{run: readCredentials(deps.Authentication.Credentials.Signers), timeout: credentialTimeout}
	s.uses = &coalescer[access.CredentialUse, struct{}]{run: s.recordUses, timeout: credentialTimeout}
	s.failedSignIns = &coalescer[refusedSignIn, struct{}]{run: s.auditRefusedSignIns, timeout: auditTimeout}
	s.sweeps = &coalescer[struct{}, struct{}]{run: s.sweepRequestIDs, timeout: credentialTimeout}
	s.resets = &coalescer[string, struct{}]{run: s.noteResets, timeout: credentialTimeout}
	if s.listings.recorded, err = simplelru.NewLRU[listing, time.Time](maxListings, nil); err != nil {
		return nil, err
	}
	s.firstKept, s.termsKept = newKeptValues(s.Now, deps.Store.Unrated.FirstStarts), newKeptValues(s.Now, deps.Store.Unrated.DimensionTerms)
	s.metersKept = newKeptValues(s.Now, s.readDimensionMeters)
	s.unratedKept = newBoundedCache[metering.TenantID, []ledger.UnratedTotal]()
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

// routes registers all operations and pages. Operations are defined in the files of their handlers.
func (s *server) routes() {
	s.registerCustomers()
	s.registerErasures()
	s.registerArchives()
	s.registerMeters()
	s.registerMeterPreviews()
	s.registerPrices()
	s.registerPricePreviews()
	s.registerCalculations()
	s.registerPlans()
	s.registerCustomerPrices()
	s.registerEvents()
	s.registerQuotas()
	s.registerEventLists()
	s.registerEventCounts()
	s.registerConflicts()
	s.registerUncountedEvents()
	s.registerUsage()
	s.registerDailyUsage()
	s.registerBreakdown()
	s.registerExports()
	s.registerBillingPreview()
	s.registerProviders()
	s.registerProviderEvents()
	s.registerSyncs()
	s.registerSyncSteering()
	s.registerReports()
	s.registerPeriods()
	s.registerStatements()
	s.registerStatementExports()
	s.registerExplanations()
	s.registerDiscrepancies()
	s.registerAttention()
	s.registerUnrated()
	s.registerReconciliations()
	s.registerHolds()
	s.registerAutoSync()
	s.registerAPIKeys()
	s.registerRotations()
	s.registerHMACSecrets()
	s.registerAlerts()
	s.registerWebhooks()
	s.registerAuditLog()
	s.registerSessions()
	s.registerInvitations()
	s.registerOIDC()
	s.registerOwnSessions()
	s.registerTenants()
	s.registerMembers()
	s.registerHealth()

	s.registerDashboard()
	s.registerDocs()
	s.mux.HandleFunc("GET /errors/{code}", s.explainError)

	// The following calls need all operations to be registered.
	s.describeRefusals()
	s.describeEmptyParameters()
	s.describeMessages()
	s.describeFields()
	adaptToGenerators(s.api.OpenAPI())
	s.decimals = decimalsOf(s.api.OpenAPI())
	s.registerDocuments()
}
