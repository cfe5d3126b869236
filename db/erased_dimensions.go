package db

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// dimensionColumns are the columns with charges that contain dimension values from a customer's events. read
// selects the key and the text of each row; write updates one row.
var dimensionColumns = []struct{ read, write string }{
	{readTotals("dimensions"), writeTotals("dimensions")},
	{readTotals("late_dimensions"), writeTotals("late_dimensions")},
	{readTotals("late_difference_dimensions"), writeTotals("late_difference_dimensions")},
	{readTotals("working"), writeTotals("working")},
	{
		`select id, dimensions::text from billing_adjustments where tenant_id = $1 and customer_id = $2 and dimensions is not null`,
		`update billing_adjustments set dimensions = $3::text::jsonb where tenant_id = $1 and id = $2`,
	},
	{
		`select id, convert_from(body, 'UTF8') from billing_reports where tenant_id = $1 and customer_id = $2 and convert_from(body, 'UTF8') like '%"dimension":%'`,
		`update billing_reports set body = convert_to($3, 'UTF8') where tenant_id = $1 and id = $2`,
	},
}

func readTotals(column string) string {
	return `
		select t.period_id, t.meter_key, t.component, t.` + column + `::text
		from billing_periods p
		join billing_period_totals t on t.tenant_id = p.tenant_id and t.period_id = p.id
		where p.tenant_id = $1
		  and p.customer_id = $2
		  and t.` + column + `::text like '%"dimension":%'`
}

func writeTotals(column string) string {
	return `update billing_period_totals set ` + column + ` = $5::text::jsonb where tenant_id = $1 and period_id = $2 and meter_key = $3 and component = $4`
}

// keepPriced adds to k the dimension values that the tenant's prices match. These values are not personal data
// of a customer, and a charge would change without them.
func (k kept) keepPriced(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	rows, err := tx.Query(ctx, `select terms from price_terms where tenant_id = $1 and terms ? 'dimensions'`, tenant)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[billing.Terms])
	for _, terms := range all {
		for _, p := range terms.Dimensions.Prices {
			for property, values := range p.Match {
				for _, value := range values {
					k.addValue(property, value.String())
				}
			}
		}
	}
	return err
}

// eraseDimensions replaces the dimension values in the charges of the customer's periods in the same way as
// in group keys. The values in stay remain.
func (s Erasures) eraseDimensions(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, stay kept) error {
	for _, column := range dimensionColumns {
		rows, err := tx.Query(ctx, column.read, tenant, customer)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err != nil {
			return err
		}
		for _, row := range found {
			last := len(row) - 1
			text := fmt.Sprint(row[last])
			if row[last], err = s.eraseKeys(tenant, text, stay); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, column.write, append([]any{tenant}, row...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// dimensionKey matches the JSON field dimension of a billing.DimensionUsage or of a step, with
// scalar values.
var dimensionKey = regexp.MustCompile(`("dimension":\s*)(\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\})`)

// eraseKeys replaces the values in each dimension field of a JSON text, except for the values in stay.
func (s Erasures) eraseKeys(tenant metering.TenantID, text string, stay kept) (string, error) {
	var failed error
	erased := dimensionKey.ReplaceAllStringFunc(text, func(field string) string {
		parts := dimensionKey.FindStringSubmatch(field)
		key, err := s.erasedKey(tenant, json.RawMessage(parts[2]), stay)
		if err != nil {
			failed = err
		}
		return parts[1] + string(key)
	})
	return erased, failed
}
