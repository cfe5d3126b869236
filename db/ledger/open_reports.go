package ledger

import (
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
)

// selectOpen is the SQL that selects the customer's reports that are planned, being sent, or have an unknown outcome.
// It also selects all reports that finalize standalone invoices of incomplete periods at @connection. Holds are not
// selected, because they have no period.
const selectOpen = `
	select r.id, r.number, s.kind, d.connection_id, p.starts_at, r.state, r.ledger_epoch, ` + isUnreadThere + `, r.lease_until
	from billing_reports r
	join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id and p.stream = @stream
	join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
	join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
	join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id
	where r.tenant_id = @tenant
	  and r.customer_id = @customer
	  and r.state in ('planned', 'sending', 'in_doubt')
	union all
	select r.id, r.number, s.kind, d.connection_id, p.starts_at, r.state, r.ledger_epoch, ` + isUnreadThere + `, r.lease_until
	from billing_destinations d
	join billing_connections k on k.tenant_id = d.tenant_id and k.id = d.connection_id
	cross join lateral (` + seriesAt + ` and s.kind = 'invoice_action' offset 0) s
	join billing_reports r on r.tenant_id = s.tenant_id and r.series_id = s.id
	join billing_periods p on p.tenant_id = r.tenant_id and p.id = r.period_id and p.stream = @stream and not p.complete
	where d.tenant_id = @tenant
	  and d.customer_id = @customer
	  and d.connection_id = @connection
	  and r.state not in ('planned', 'sending', 'in_doubt')
	order by number`

type openReport struct {
	billing.Open
	number int64
}

func scanOpen(row pgx.CollectableRow) (o openReport, err error) {
	return o, row.Scan(&o.ID, &o.number, &o.Kind, &o.Connection, &o.Period, &o.State, &o.Epoch, &o.Unread, &o.LeaseUntil)
}

func (r *factReader) addOpen(o openReport) {
	f := &r.facts
	if o.State.Outstanding() {
		f.Open = append(f.Open, o.Open)
	}
	if o.Kind == billing.ActionReport && f.Connection != nil && o.Connection == f.Connection.ID {
		f.Finalized = append(f.Finalized, billing.Sent{ID: o.ID, Period: o.Period, Number: o.number, Epoch: o.Epoch, State: o.State})
	}
}
