// Package activities holds the outside effects that workflows are made of, one
// each: reading or changing the ledger, counting a day, calling a provider.
//
// Every one of them may run twice, or twice at once. Their inputs and results
// stay in Temporal's history, so they hold internal ids and numbers, never a
// secret, an external id or a URL, but for those of our own API. They decide neither when nor how often they
// run.
package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// Activities are the effects and what they reach.
type Activities struct {
	store     *db.DB
	keyring   db.Keyring
	webhook   deliverer
	providers providers.Registry
	keep      metering.Retention
	metrics   Metrics
	now       func() time.Time
	base      string
	heavy     *db.Shares[metering.TenantID]
}

// Config is what the activities of a worker reach.
type Config struct {
	Store     *db.DB
	Keyring   db.Keyring // of sealed secrets
	Webhook   deliverer  // to tenants' webhooks
	Providers providers.Registry
	Retention metering.Retention
	Metrics   Metrics
	Now       func() time.Time
	BaseURL   string // where clients reach the API; "": that is not known
}

// deliverer sends a message to a webhook and says what the answer means.
type deliverer interface {
	Deliver(ctx context.Context, url string, secrets []string, id string, now time.Time, body []byte) (webhook.Answer, error)
}

// New makes the activities of a worker.
func New(c Config) *Activities {
	return &Activities{c.Store, c.Keyring, c.Webhook, c.Providers, c.Retention, c.Metrics, c.Now, c.BaseURL, db.NewShares[metering.TenantID](heavyAtOnce)}
}

// heavyAtOnce is how many parts of heavy work a worker does at once: days that are counted
// and events that are erased. A tenant has one of them.
const heavyAtOnce = 2

// inTurn does a part of heavy work in the tenant's turn, so that a tenant with much of it
// delays another one by a part of it alone.
func (a *Activities) inTurn(ctx context.Context, tenant metering.TenantID, part func() error) error {
	if err := a.heavy.Wait(ctx, tenant); err != nil {
		return err
	}
	defer a.heavy.Give(tenant, 1)
	return part()
}

// pageOf is where a browser finds the customer in the API; "" where the worker
// was not told where that is.
func (a *Activities) pageOf(customer metering.CustomerID) string {
	if a.base == "" || customer == 0 {
		return ""
	}
	return a.base + "/v1/customers/by-id?id=" + customer.String()
}

// Beat is how often an activity shows that its worker lives, and how far it has come.
const Beat = 3 * time.Second

// alive reports that the activity is being worked on, with its progress so
// far, until the returned function is called: the work of a killed worker is
// noticed within seconds, however long it may take.
func alive(ctx context.Context, progress ...any) (stop func()) {
	// The SDK sends a beat that it has held back in the context of the one
	// before, and gives the attempt up where that context has ended: it is the
	// activity's, and stop does not end it.
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

// lease outlasts a call to any provider, so that nobody sends a report while
// another still does.
func (a *Activities) lease() time.Duration { return a.providers.Timeout() + 5*time.Second }

// called is a provider and what it is called with.
type called struct {
	providers.Provider
	providers.Description
	credentials providers.Credentials
}

// open returns the tenant's provider with its secret.
func (a *Activities) open(tenant metering.TenantID, p metering.Provider) (called, error) {
	provider, err := a.providers.Of(p.Kind)
	if err != nil {
		return called{}, err
	}
	secret, err := a.keyring.Open(tenant, db.ProviderSecret, p.SealedSecret)
	if err != nil {
		return called{}, metering.Errorf(metering.CodeProviderRefuse,
			"the provider's secret cannot be decrypted with this worker's ODOMETER_ENCRYPTION_KEYS; add the missing key or save the provider again").Because(err)
	}
	return called{provider, provider.Describe(), providers.Credentials{Address: p.Address, Account: p.Account, Secret: string(secret)}}, nil
}
