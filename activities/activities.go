// Package activities contains the activities of the workflows. Each activity performs one step: it
// reads or changes the database, counts a day or calls a provider.
//
// An activity may run more than once, even concurrently. Inputs and results stay in Temporal's
// history, so they contain internal ids and numbers. They contain no secrets, no external ids and
// no URLs except those of Odometer's API. Workflows decide when and how often an activity runs.
package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// Activities implements all activities of a worker.
type Activities struct {
	store     *db.DB
	keyring   seal.Keyring
	webhook   deliverer
	providers providers.Registry
	retention metering.Retention
	metrics   Metrics
	now       func() time.Time
	baseURL   string
	heavy     *fair.Shares[metering.TenantID]
}

// Config contains the dependencies of Activities.
type Config struct {
	Store     *db.DB
	Keyring   seal.Keyring // opens sealed secrets
	Webhook   deliverer    // delivers messages to tenants' webhooks
	Providers providers.Registry
	Retention metering.Retention
	Metrics   Metrics
	Now       func() time.Time
	BaseURL   string // base URL of the API for clients; "": unknown
}

// deliverer sends a message to a webhook and returns the meaning of the answer.
type deliverer interface {
	Deliver(ctx context.Context, url string, secrets []string, id string, now time.Time, body []byte) (webhook.Answer, error)
}

// New returns the activities of a worker.
func New(c Config) *Activities {
	return &Activities{c.Store, c.Keyring, c.Webhook, c.Providers, c.Retention, c.Metrics, c.Now, c.BaseURL, fair.NewShares[metering.TenantID](heavyAtOnce)}
}

// heavyAtOnce is the maximum number of parts of heavy work that a worker does concurrently: days to count, and erasures
// of events. A tenant has at most one of them.
const heavyAtOnce = 2

// runInTurn runs one part of heavy work after it has waited for one of the worker's heavyAtOnce slots. The slots go to
// waiting tenants in rotation, so that a tenant with much heavy work delays another tenant by at most one part.
func (a *Activities) runInTurn(ctx context.Context, tenant metering.TenantID, part func() error) error {
	if err := a.heavy.Wait(ctx, tenant); err != nil {
		return err
	}
	defer a.heavy.Give(tenant, 1)
	return part()
}

// pageOf returns the customer's URL in the API, or "" if the base URL is unknown or the customer is 0.
func (a *Activities) pageOf(customer metering.CustomerID) string {
	if a.baseURL == "" || customer == 0 {
		return ""
	}
	return a.baseURL + "/v1/customers/by-id?id=" + customer.String()
}

// Beat is the interval of the heartbeats with which an activity reports its progress.
const Beat = 3 * time.Second

// sendHeartbeats sends heartbeats with the progress until the returned function is called. Temporal therefore notices a
// killed worker within seconds, even during long work.
func sendHeartbeats(ctx context.Context, progress ...any) (stop func()) {
	// The SDK sends a delayed heartbeat in the context of the previous one, and cancels the attempt
	// if that context has ended. Therefore, heartbeats use the activity's context, which stop does
	// not end.
	stopped := make(chan struct{})
	go func() {
		ticks := time.NewTicker(Beat)
		defer ticks.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-ctx.Done():
				return
			case <-ticks.C:
				activity.RecordHeartbeat(ctx, progress...)
			}
		}
	}()
	return func() { close(stopped) }
}

// openedProvider is a provider with its description and the tenant's decrypted credentials.
type openedProvider struct {
	providers.Provider
	providers.Description
	credentials providers.Credentials
}

// openProvider returns the tenant's provider with its decrypted secret.
func (a *Activities) openProvider(tenant metering.TenantID, p metering.Provider) (openedProvider, error) {
	provider, err := a.providers.Of(p.Kind)
	if err != nil {
		return openedProvider{}, err
	}
	secret, err := a.keyring.Open(tenant, seal.ProviderSecret, p.SealedSecret)
	if err != nil {
		return openedProvider{}, metering.Errorf(metering.CodeProviderRefuse,
			"the provider's secret cannot be decrypted with this worker's ODOMETER_ENCRYPTION_KEYS; add the missing key or save the provider again").Because(err)
	}
	return openedProvider{provider, provider.Describe(), providers.Credentials{Address: p.Address, Account: p.Account, Secret: string(secret)}}, nil
}
