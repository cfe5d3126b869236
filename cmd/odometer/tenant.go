package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// createTenant creates a tenant, its first admin key and, with -owner-email, its owner. The key and a
// generated password are printed and not shown again.
func createTenant(ctx context.Context, env *environment, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("tenant create", flag.ContinueOnError)
	name := flags.String("name", "", "the tenant's name (required)")
	zone := flags.String("timezone", "UTC", "IANA time zone of the tenant, such as Europe/Zurich; days, months and billing periods begin at local midnight")
	currency := flags.String("currency", "USD", "ISO 4217 code of the currency of the tenant's prices")
	strict := flags.Bool("strict", false, "reject events with an unknown customer, event type or field, or without a usable value for a meter")
	conflicts := flags.String("idempotency-conflicts", string(metering.AcceptConflicts), "accept or reject: how to answer an event whose idempotency_key was already used with other content")
	perMinute := flags.Int("requests-per-minute", metering.DefaultRequestsPerMinute, "number of requests with events that the tenant may send per minute")
	ownerEmail := flags.String("owner-email", "", "e-mail with which the tenant's owner signs in; default: the tenant has no members")
	passwordStdin := flags.Bool("password-stdin", false, "read the owner's password from standard input; default: generate a password and print it")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if most := cmp.Or(env.count("MAX_REQUESTS_PER_MINUTE"), metering.DefaultRequestsCeiling); *perMinute < 1 || *perMinute > most {
		return metering.Invalid("requests-per-minute", "must be 1 to %d; to raise the maximum, set MAX_REQUESTS_PER_MINUTE", most)
	}
	var err error
	flags.Visit(func(given *flag.Flag) {
		if given.Name == "owner-email" && *ownerEmail == "" {
			err = metering.Invalid("owner-email", "must not be empty; omit the flag for a tenant without members")
		}
	})
	if err != nil {
		return err
	}
	url, keys, passwords := env.databaseURL(), env.keys(), env.passwords()
	if err := env.err(); err != nil {
		return err
	}
	password, made, err := newPassword(*ownerEmail, *passwordStdin, in)
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, url, env.secret(), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.AuditLog.CheckSecret(ctx); err != nil {
		return err
	}
	tenant, err := store.Tenants.Create(ctx, metering.Operator, metering.Tenant{
		Name: *name, Timezone: *zone, Currency: *currency, RequestsPerMinute: *perMinute, Strict: *strict, KeyConflicts: metering.ConflictPolicy(*conflicts),
	})
	if err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	key, record := keys.Make(metering.ScopeAdmin)
	record.Name = "First admin key"
	if _, err := store.Credentials.Create(ctx, tenant.ID, metering.Operator, metering.APIKeyCredential, record, time.Now()); err != nil {
		return fmt.Errorf("create admin key: %w", err)
	}
	if password != "" {
		owner := metering.Member{Email: *ownerEmail, Role: metering.RoleOwner}
		if _, err := store.Members.Create(ctx, tenant.ID, metering.Operator, owner, passwords.Hash(*ownerEmail, password)); err != nil {
			return fmt.Errorf("create owner: %w", err)
		}
	}
	return printTenant(out, *asJSON, tenant.ID.String(), key, *ownerEmail, made)
}

// newPassword returns the owner's password, or "" if email is empty. If fromStdin is true, it reads
// the password from in. Otherwise it generates the password, and also returns it as generated.
func newPassword(email string, fromStdin bool, in io.Reader) (password, generated string, err error) {
	if email == "" {
		return "", "", nil
	}
	if err := metering.ValidEmail("owner-email", email); err != nil {
		return "", "", err
	}
	if !fromStdin {
		generated = rand.Text()
		return generated, generated, nil
	}
	text, err := io.ReadAll(io.LimitReader(in, 1<<10))
	if err != nil {
		return "", "", fmt.Errorf("read password: %w", err)
	}
	password = strings.TrimRight(string(text), "\r\n")
	return password, "", metering.ValidPassword("password", password)
}

// printTenant prints a new tenant with its key and its owner. It omits empty values.
func printTenant(out io.Writer, asJSON bool, id, key, email, password string) error {
	made := []struct{ label, name, value string }{
		{"Tenant", "tenant_id", id}, {"Admin key", "admin_key", key}, {"Owner", "email", email}, {"Password", "password", password},
	}
	if asJSON {
		named := map[string]string{}
		for _, m := range made {
			if m.value != "" {
				named[m.name] = m.value
			}
		}
		return json.NewEncoder(out).Encode(named)
	}
	var text strings.Builder
	for _, m := range made {
		if m.value != "" {
			fmt.Fprintf(&text, "%-10s %s\n", m.label, m.value)
		}
	}
	_, err := fmt.Fprintf(out, "%s\nStore the key and any generated password now: they are not shown again.\n", &text)
	return err
}
