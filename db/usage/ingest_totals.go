package usage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// sum adds the fresh events to the rollups, and registers the groups that this process has not seen
// yet. It counts one meter version after another, and writes the rollups whenever they are full.
// Every transaction registers groups in the order of the meter versions, which avoids deadlocks.
func (a *attempt) sum(ctx context.Context, conn *pgxpool.Conn, sums *rollups) error {
	places := a.placesByType()
	a.groups = make(map[groupName]bool)
	for _, g := range a.feeding(places) {
		for _, i := range places[g.EventType] {
			if err := a.count(sums, g, i); err != nil {
				return err
			}
		}
		if !sums.isFull() {
			continue
		}
		if err := a.settle(ctx, conn, sums); err != nil {
			return err
		}
		if err := sums.write(ctx, conn, a.tenant); err != nil {
			return fmt.Errorf("store usage: %w", err)
		}
	}
	return a.settle(ctx, conn, sums)
}

// placesByType returns the indexes in a.fresh by event type. It sets a.types to the event types that this
// process has not seen yet.
func (a *attempt) placesByType() map[string][]int {
	places := make(map[string][]int)
	for i, e := range a.fresh {
		places[e.EventType] = append(places[e.EventType], i)
	}
	for eventType := range places {
		if !a.writer.types.Contains(typeName{a.tenant, eventType}) {
			a.types = append(a.types, eventType)
		}
	}
	slices.Sort(a.types)
	return places
}

// feeding returns the meter versions that count events of these types, ordered by id.
func (a *attempt) feeding(places map[string][]int) (versions []metering.MeterVersion) {
	for eventType := range places {
		versions = append(versions, a.meters.byType[eventType]...)
	}
	slices.SortFunc(versions, func(a, b metering.MeterVersion) int { return cmp.Compare(a.ID, b.ID) })
	return versions
}

// count adds a fresh event to the rollups of a meter version.
func (a *attempt) count(sums *rollups, g metering.MeterVersion, fresh int) error {
	e, outcome, slug := a.fresh[fresh], &a.outcomes[a.places[fresh]], a.meters.slugs[g.MeterID]
	m, err := sums.add(g, e, a.closed[e.CustomerID].contains(g.MeterID, e.At))
	if err != nil {
		return err
	}
	if m.Verdict != metering.Counted {
		if outcome.noteUncounted(slug, g, m.Verdict) {
			a.uncounted = append(a.uncounted, uncountedReference{g.MeterID, e.ReceivedAt, e.ID, m.Verdict, e.CustomerID, e.At})
		}
		return nil
	}
	outcome.Ungrouped = append(outcome.Ungrouped, g.Missing(m.Group, e)...)
	if len(m.Group.Key) > metering.MaxGroupKeyBytes {
		outcome.LongKeys = append(outcome.LongKeys, slug)
	}
	if a.bills && e.At.Before(e.CustomerSince) {
		outcome.Early = append(outcome.Early, slug)
	}
	if g.Aggregation == metering.Count && m.Value.IsNegative() {
		outcome.Negative = append(outcome.Negative, slug)
	}
	if g.ValueProperty != "" && e.Value.IsNegative() {
		outcome.Unread = append(outcome.Unread, UnreadValue{slug, g.ValueProperty})
	}
	return nil
}

// settle registers the groups that this process has not seen yet. It moves the usage of groups that cannot be
// registered to OtherGroup, and reports these groups in the outcomes.
func (a *attempt) settle(ctx context.Context, conn *pgxpool.Conn, sums *rollups) error {
	registered, err := sums.settle(ctx, conn, a.tenant, func(name groupName) bool {
		return a.writer.groups.Contains(groupEntry{name, a.erasures})
	})
	maps.Copy(a.groups, registered)
	if err != nil || len(sums.groups) == 0 {
		return err
	}
	return a.noteCrowded(sums.groups)
}

// noteCrowded adds the meter's slug to the outcome of each event in a group that was not registered,
// because the meter has metering.MaxGroupsPerMeter groups already.
func (a *attempt) noteCrowded(unregistered groupsMet) error {
	versions := versionsOf(inInsertOrder(unregistered))
	for i, e := range a.fresh {
		for _, g := range a.meters.byType[e.EventType] {
			if !slices.Contains(versions, int64(g.ID)) {
				continue
			}
			m, err := g.Measure(e)
			if err != nil {
				return err
			}
			if _, found := unregistered[groupName{g.ID, m.Group.ID}]; found && len(m.Group.Key) <= metering.MaxGroupKeyBytes {
				outcome := &a.outcomes[a.places[i]]
				outcome.Crowded = append(outcome.Crowded, a.meters.slugs[g.MeterID])
			}
		}
	}
	return nil
}
