package usage

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// edgeName identifies a sum of raw events within a partial hour.
type edgeName struct {
	customer metering.CustomerID
	group    metering.GroupID
}

// mostEdges is the maximum number of sums of raw events that one read holds in memory.
const mostEdges = 200_000

var errManyEdges = metering.Invalid("query.start", "and query.end must be at full hours in the tenant's time zone, because too many customers have usage in the partial hours of the range")

// LoadEdges sums the raw events of the partial hours of the range. It counts events by the same rules as ingest.
func (r *WindowRead) LoadEdges(ctx context.Context) error {
	for _, edge := range r.ragged {
		if err := r.loadEdge(ctx, edge); err != nil {
			return err
		}
	}
	slices.SortFunc(r.edges, func(a, b windowPart) int {
		return cmp.Or(bytes.Compare(a.group[:], b.group[:]), a.start.Compare(b.start))
	})
	return nil
}

// loadEdge adds the sums of the raw events of one partial hour to r.edges.
func (r *WindowRead) loadEdge(ctx context.Context, edge metering.Range) error {
	statement := newUsageStatement(r.tenant, r.Customer, nil)
	sums := make(map[edgeName]*windowPart)
	statement.Args["from"], statement.Args["until"], statement.Args["type"] = edge.Start, edge.End, r.Meter.EventType
	statement.Args["meter"], statement.Args["version"] = r.Meter.ID, r.Meter.Version.ID
	rows, err := r.Querier.Query(ctx, `
		select e.customer_id, e.value, e.properties, e.erased is not null, `+isLate("@meter")+`
		from events e
		where `+statement.customerCondition("e")+` and e.ts >= @from and e.ts < @until and e.event_type = @type
		  and not exists (select from meter_versions g where g.tenant_id = @tenant and g.id = @version and e.epoch >= g.until_epoch)`, statement.Args)
	if err != nil {
		return err
	}
	var sent metering.Event
	var late bool
	_, err = pgx.ForEachRow(rows, []any{&sent.CustomerID, &sent.Value, &sent.Properties, &sent.Erased, &late}, func() error {
		e := sent
		m, err := r.Meter.Version.Measure(&e)
		if err != nil || m.Verdict != metering.Counted {
			return err
		}
		id := m.Group.ID
		if !r.registered[id] {
			id = metering.OtherGroup.ID
		}
		shown, asked := r.groups[id]
		if !asked {
			return nil
		}
		name := edgeName{group: shown}
		if r.byCustomer {
			name.customer = e.CustomerID
		}
		part, ok := sums[name]
		if !ok {
			if len(r.edges)+len(sums) == r.most {
				return errManyEdges
			}
			part = &windowPart{customer: name.customer, group: shown, start: edge.Start}
			sums[name] = part
		}
		part.add(m.Value, late)
		return nil
	})
	for _, part := range sums {
		r.edges = append(r.edges, *part)
	}
	return err
}
