package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

var errBrokenLog = errors.New("an audit log was changed after it was written; the lines above name the entries")

// verifyAudit recomputes the MAC chains of audit logs and prints the entries at which a chain breaks.
func verifyAudit(ctx context.Context, env *environment, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("audit verify", flag.ContinueOnError)
	name := flags.String("tenant", "", "id of the tenant whose audit log to verify, such as ten_1; default: every tenant")
	noted := flags.String("expect", "", "head that an earlier audit verify printed for this tenant; the log must still contain this entry")
	if err := flags.Parse(args); err != nil {
		return err
	}
	only, expected, err := auditFlags(*name, *noted)
	if err != nil {
		return err
	}
	url, secret := env.databaseURL(), env.secret()
	if err := env.err(); err != nil {
		return err
	}
	store, err := db.Open(ctx, url, secret, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if only != 0 {
		return verifyTenant(ctx, store, only, expected, out)
	}
	return verifyTenants(ctx, store, out)
}

// auditFlags parses the values of the flags -tenant and -expect. An absent -tenant selects all tenants, and an absent
// -expect expects nothing.
func auditFlags(name, noted string) (only metering.TenantID, expected *metering.AuditHead, err error) {
	if name != "" {
		var ok bool
		if only, ok = metering.ParseTenantID(name); !ok {
			return 0, nil, errors.New("-tenant must be a tenant's id, such as ten_42")
		}
	}
	if noted == "" {
		return only, nil, nil
	}
	if only == 0 {
		return 0, nil, errors.New("-expect needs -tenant: every tenant's log has its own head")
	}
	head, err := metering.ParseAuditHead(noted)
	return only, &head, err
}

// verifyTenants verifies the audit logs of all tenants. It returns errBrokenLog if at least one of them is broken.
func verifyTenants(ctx context.Context, store *db.DB, out io.Writer) error {
	const atOnce = 100
	var last metering.TenantID
	var broken error
	for {
		tenants, err := store.Tenants.After(ctx, last, atOnce)
		if err != nil {
			return err
		}
		for _, tenant := range tenants {
			err := verifyTenant(ctx, store, tenant, nil, out)
			if err != nil && !errors.Is(err, errBrokenLog) {
				return err
			}
			broken = errors.Join(broken, err)
			last = tenant
		}
		if len(tenants) < atOnce {
			if broken != nil {
				return errBrokenLog
			}
			return nil
		}
	}
}

// verifyTenant verifies one audit log, and prints its breaks, or its head if it is intact.
func verifyTenant(ctx context.Context, store *db.DB, tenant metering.TenantID, expected *metering.AuditHead, out io.Writer) error {
	head, breaks, err := store.AuditLog.Verify(ctx, tenant, expected)
	if err != nil {
		return err
	}
	for _, found := range breaks {
		if _, err := fmt.Fprintf(out, "%s broken: %s\n", tenant, found); err != nil {
			return err
		}
	}
	if len(breaks) > 0 {
		return errBrokenLog
	}
	_, err = fmt.Fprintf(out, "%s intact, head %s\n", tenant, head)
	return err
}
