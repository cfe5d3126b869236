package db_test

import (
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestCheckConstraintsListValuesOfTheCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string][]string{
		"tenants idempotency_conflicts":      words(metering.ConflictPolicy("").Values()),
		"tenants late_policy":                words(metering.LatePolicy("").Values()),
		"billing_connections bills":          words(metering.Bills("").Values()),
		"billing_connections bills_before":   words(metering.Bills("").Values()),
		"billing_periods bills":              append([]string{""}, words(metering.Bills("").Values())...),
		"alerts type":                        words(metering.AlertType("").Values()),
		"credentials kind":                   words(metering.CredentialKind("").Values())[:2], // a webhook's secret is in the webhook's row
		"credentials scope":                  words(metering.Scope("").Values()),
		"credentials signatures":             words(metering.Signatures("").Values()),
		"meter_versions status":              words(metering.MeterVersionStatus("").Values()),
		"billing_series kind":                words(billing.Kind("").Values()),
		"billing_series counting":            words([]billing.Counting{billing.Replaces, billing.Adds, billing.Latest}),
		"billing_holds state":                words(billing.HoldState("").Values()),
		"billing_reports state":              words(billing.State("").Values()),
		"billing_reports mode":               {"live", "shadow"},
		"billing_reconciliations state":      words(billing.ReconciliationState("").Values())[1:], // an open reconciliation is not stored
		"billing_syncs trigger":              words(metering.Trigger("").Values()),
		"billing_syncs status":               words(metering.SyncStatus("").Values()),
		"invitations role":                   words(metering.Role("").Values()),
		"members role":                       words(metering.Role("").Values()),
		"credential_rotations kind":          words(metering.CredentialKind("").Values()),
		"credential_rotations outcome":       words(metering.RotationOutcome("").Values()),
		"quotas mode":                        words(metering.QuotaMode("").Values()),
		"quotas period":                      words(metering.QuotaPeriod("").Values()),
		"webhook_endpoints disabled_because": words(metering.DisabledBecause("").Values()),
		"webhook_deliveries status":          words(metering.DeliveryStatus("").Values()),
	}, checkedSets(t))
}

func words[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

var (
	checkedSet = regexp.MustCompile(`^CHECK \(\((\w+) = ANY \(ARRAY\[(.*)\]\)\)\)$`)
	checkedOne = regexp.MustCompile(`'([^']*)'::text`)
)

// checkedSets returns the values of every check constraint that lists values, by table and column.
func checkedSets(t *testing.T) map[string][]string {
	t.Helper()
	rows, err := dbtest.Conn(t).Query(t.Context(), `
		select conrelid::regclass::text, pg_get_constraintdef(oid)
		from pg_constraint
		where contype = 'c' and connamespace = 'public'::regnamespace`)
	require.NoError(t, err)
	found := map[string][]string{}
	var table, check string
	_, err = pgx.ForEachRow(rows, []any{&table, &check}, func() error {
		list := checkedSet.FindStringSubmatch(check)
		if list == nil {
			return nil
		}
		column := table + " " + list[1]
		for _, value := range checkedOne.FindAllStringSubmatch(list[2], -1) {
			found[column] = append(found[column], value[1])
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
