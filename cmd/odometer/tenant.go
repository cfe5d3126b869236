package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// createTenant makes a tenant and the admin key with which everything else is
// done over the API. The key is shown this once.
func createTenant(ctx context.Context, env *environment, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("tenant create", flag.ContinueOnError)
	name := flags.String("name", "", "the tenant's name (required)")
	zone := flags.String("zone", "UTC", "its time zone, such as Europe/Zurich: days, months and billing periods are local")
	currency := flags.String("currency", "USD", "the currency of its prices, ISO 4217")
	perMinute := flags.Int("events-per-minute", metering.DefaultEventsPerMinute, "how many requests with events it may send in a minute")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	url, keys := env.databaseURL(), env.keys()
	if err := env.err(); err != nil {
		return err
	}
	store, err := db.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	tenant, err := store.Tenants.Create(ctx, metering.Operator, metering.Tenant{
		Name: *name, Zone: *zone, Currency: *currency, EventsPerMinute: *perMinute,
	})
	if err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	key, hash, lastFour := keys.Make(metering.ScopeAdmin)
	record := metering.APIKey{Name: "First admin key", Scope: metering.ScopeAdmin, LastFour: lastFour}
	if _, err := store.APIKeys.Create(ctx, tenant.ID, metering.Operator, record, hash); err != nil {
		return fmt.Errorf("create admin key: %w", err)
	}
	if *asJSON {
		return json.NewEncoder(out).Encode(map[string]string{"tenant_id": tenant.ID.String(), "admin_key": key})
	}
	_, err = fmt.Fprintf(out, "Tenant     %s\nAdmin key  %s\n\nThe key is not shown again.\n", tenant.ID, key)
	return err
}
