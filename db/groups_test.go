package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

func TestGroupsBeyondMaximumAreCountedInOtherGroup(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	tenant := dbtest.Tenant(t, store).ID
	m := dbtest.Meter(t, store, tenant, "calls", "call", "session")
	const beyond = 30
	event := func(session int, minute int, value string) metering.Event {
		return dbtest.Event(t, "call", "acme", november.Add(time.Duration(minute)*time.Minute), value, "", fmt.Sprintf(`{"session":%d}`, session))
	}
	var events []metering.Event
	for session := range metering.MaxGroupsPerMeter + beyond {
		events = append(events, event(session, 0, "1"))
	}
	crowded := 0
	for _, outcome := range ingest(t, store, tenant, events...) {
		crowded += len(outcome.Crowded)
	}
	require.Equal(t, beyond, crowded)
	outcomes := ingest(t, store, tenant, event(0, 1, "0.5"), event(1<<40, 1, "0.25"), event(1<<40, 20, "0.125")) // a known group, and an unknown one twice
	require.Empty(t, outcomes[0].Crowded)
	require.Equal(t, [][]string{{"calls"}, {"calls"}}, [][]string{outcomes[1].Crowded, outcomes[2].Crowded})

	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	windows := func(start, end time.Time, groups map[string][]json.RawMessage) usage.WindowPage {
		query := usage.WindowQuery{
			Customer: acme.ID, Meter: m, Range: metering.Range{Start: start, End: end}, Granularity: metering.Hour, Groups: groups, Limit: 20_000,
		}
		var all []usage.Window
		for {
			page, err := store.Usage.Windows(t.Context(), tenant, query)
			require.NoError(t, err)
			all = append(all, page.Windows...)
			if page.Windows = all; !page.More {
				return page
			}
			query.After = &usage.WindowCursor{GroupID: all[len(all)-1].GroupID, Start: all[len(all)-1].Start}
		}
	}
	of := func(page usage.WindowPage, id metering.GroupID) (total string) {
		for _, g := range page.Groups {
			if g.GroupID == id {
				total = g.Total.String()
			}
		}
		return total
	}
	hour := metering.WindowOf(november, metering.Hour, time.UTC)

	t.Run("InAWholeHour", func(t *testing.T) {
		page := windows(hour.Start, hour.End, nil)
		require.Len(t, page.Groups, metering.MaxGroupsPerMeter+1)
		require.Len(t, page.Windows, metering.MaxGroupsPerMeter+1)
		require.Equal(t, fmt.Sprintf("%d.875", metering.MaxGroupsPerMeter+beyond), page.Total.String())
		require.Equal(t, fmt.Sprintf("%d.375", beyond), of(page, metering.OtherGroup.ID))
		require.Equal(t, page.Total.String(), total(t, store, tenant, "acme", hour)[0].Usage.String())
	})

	t.Run("InPartOfAnHour", func(t *testing.T) {
		page := windows(november.Add(time.Minute), november.Add(time.Hour), nil) // until 11:20
		require.Len(t, page.Groups, 2)
		require.Equal(t, "0.375", of(page, metering.OtherGroup.ID))
		require.Equal(t, "0.875", page.Total.String())
	})

	t.Run("FilterOfOtherGroupReturnsOnlyOtherGroup", func(t *testing.T) {
		others := map[string][]json.RawMessage{"$other": {json.RawMessage("true")}}
		require.Equal(t, fmt.Sprintf("%d.375", beyond), windows(hour.Start, hour.End, others).Total.String())
		require.Equal(t, "0.375", windows(november.Add(time.Minute), november.Add(time.Hour), others).Total.String())
	})

	t.Run("FilterOfGroupExcludesOtherGroup", func(t *testing.T) {
		session := func(number int) map[string][]json.RawMessage {
			return map[string][]json.RawMessage{"session": {json.RawMessage(fmt.Sprint(number))}}
		}
		require.Equal(t, "1.5", windows(hour.Start, hour.End, session(0)).Total.String())
		part := windows(november.Add(time.Minute), november.Add(time.Hour), session(0))
		require.Equal(t, "0.5", part.Total.String())
		require.Equal(t, "0.375", part.Other.String(), "which may be of this session too")
		unknown := windows(hour.Start, hour.End, session(1<<40))
		require.Empty(t, unknown.Windows)
		require.Equal(t, fmt.Sprintf("%d.375", beyond), unknown.Other.String())
		require.Nil(t, windows(hour.Start, hour.End, nil).Other)
		require.Nil(t, windows(hour.Start, hour.End, map[string][]json.RawMessage{"$other": {json.RawMessage("true")}}).Other)
		require.Nil(t, windows(hour.End, hour.End.Add(time.Hour), session(0)).Other, "nothing is used then")
	})

	t.Run("IsLongDependsOnNumberOfHours", func(t *testing.T) {
		for hours, want := range map[int]bool{1: false, 9: false, 10: true, 744: true} {
			query := usage.WindowQuery{Customer: acme.ID, Meter: m, Range: metering.Range{Start: hour.Start, End: hour.Start.Add(time.Duration(hours) * time.Hour)}}
			isLong, err := store.Usage.IsLong(t.Context(), tenant, query)
			require.NoError(t, err)
			require.Equal(t, want, isLong, "%d hours of 10,001 groups", hours)
			query.Meter.Version.GroupBy = nil
			isLong, err = store.Usage.IsLong(t.Context(), tenant, query)
			require.NoError(t, err)
			require.False(t, isLong, "%d hours of one group", hours)
		}
	})

	t.Run("BackfillCountsSameTotals", func(t *testing.T) {
		_, backfilling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "calls", metersBy([]string{"session", "model"}))
		require.NoError(t, err)
		require.NoError(t, backfill(t.Context(), store, tenant, backfilling.ID))
		m, err = store.Meters.Get(t.Context(), tenant, "calls")
		require.NoError(t, err)
		require.Equal(t, backfilling.ID, m.Version.ID)
		page := windows(hour.Start, hour.End, nil)
		require.Len(t, page.Groups, metering.MaxGroupsPerMeter+1)
		require.Equal(t, fmt.Sprintf("%d.875", metering.MaxGroupsPerMeter+beyond), page.Total.String())
		require.Equal(t, page.Total.String(), total(t, store, tenant, "acme", hour)[0].Usage.String())
		requireTotalsEqualARecount(t, store, conn, tenant, metering.WholeTenant, hour)
	})
}

// TestPropertyConversionToJSONBKeepsGroup checks that a conversion to jsonb does not change
// the group of properties. Otherwise, ingest and backfill would count one event in two groups.
func TestPropertyConversionToJSONBKeepsGroup(t *testing.T) {
	t.Parallel()
	conn := dbtest.Conn(t)
	version := metering.MeterVersion{GroupBy: []string{"a", "é"}}
	histories.Check(t, func(rt *rapid.T) {
		// One query converts many texts, because each query costs a round trip to the database.
		texts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf(`{"é":%s,"a":%s}`, anyJSON(2).Draw(t, "é"), anyJSON(2).Draw(t, "a"))
		}), 1, 50).Draw(rt, "properties")
		var before []metering.Group
		var accepted []string
		for _, text := range texts {
			sent := metering.SentEvent{EventType: "call", CustomerID: "acme", Properties: json.RawMessage(text)}
			event, rejection := sent.Judge(november)
			if rejection != nil {
				continue // a number that is too long
			}
			group, err := version.GroupOf(event.Properties)
			require.NoError(rt, err)
			before, accepted = append(before, group), append(accepted, string(event.Properties))
		}
		rows, err := conn.Query(context.Background(), `select sent::jsonb::text from unnest($1::text[]) with ordinality as s (sent, place) order by place`, accepted)
		require.NoError(rt, err)
		for i := 0; rows.Next(); i++ {
			var text string
			require.NoError(rt, rows.Scan(&text))
			after, err := version.GroupOf(json.RawMessage(text))
			require.NoError(rt, err)
			require.Equal(rt, string(before[i].Key), string(after.Key), "%s became %s", accepted[i], text)
			require.Equal(rt, before[i].ID, after.ID)
		}
		require.NoError(rt, rows.Err())
	})
}

// anyJSON draws a JSON value as a client may write it.
func anyJSON(depth int) *rapid.Generator[string] {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?`)
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "é", "😀", "<", "&", `\"`, `\\`, `\/`, `\t`, `\b`, `\u0041`, `\u00e9`, `\ud83d\ude00`, `\u2028`, "\u2028", `\\u0000`, `\u0001`, "\u007f",
	}), 0, 4), func(parts []string) string {
		text := `"`
		for _, part := range parts {
			text += part
		}
		return text + `"`
	})
	leaf := rapid.OneOf(number, text, rapid.SampledFrom([]string{"null", "true", "false", "1", "1.0", "1e0", "-0", "1e2"}))
	if depth == 0 {
		return leaf
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(leaf, leaf, rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf(`[%s, %s]`, inner.Draw(t, "one"), inner.Draw(t, "two"))
	}), rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf(`{"bb": %s, "a": %s, "b":%s}`, inner.Draw(t, "one"), inner.Draw(t, "two"), inner.Draw(t, "three"))
	}))
}

// TestPropertyLongGroupKeysAreCountedInOtherGroup checks that ingest and backfills count groups with long keys
// in $other, even if a transaction writes its collected rollups several times.
func TestPropertyLongGroupKeysAreCountedInOtherGroup(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	store.LimitRollups(1)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	hour := metering.WindowOf(november, metering.Hour, time.UTC)
	histories.Check(t, func(rt *rapid.T) {
		tenant := dbtest.Tenant(t, store).ID
		m := dbtest.Meter(t, store, tenant, "calls", "call", "a")
		dbtest.Meter(t, store, tenant, "others", "call", "b", "a")
		event := rapid.Custom(func(rt *rapid.T) metering.Event {
			size := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(metering.MaxGroupKeyBytes-9, metering.MaxGroupKeyBytes-7), rapid.Just(16_000)).Draw(rt, "bytes")
			at := november.Add(time.Duration(rapid.IntRange(0, 90).Draw(rt, "minutes")) * time.Minute)
			return dbtest.Event(t, "call", "acme", at, "1.5", "", fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", size)))
		})
		events := rapid.SliceOfN(event, 2, 12).Draw(rt, "events")
		for i, outcome := range ingest(t, store, tenant, events...) {
			group, err := m.Version.GroupOf(events[i].Properties)
			require.NoError(rt, err)
			require.Equal(rt, len(group.Key) > metering.MaxGroupKeyBytes, slices.Contains(outcome.LongKeys, "calls"))
		}
		_, backfilling, err := store.Meters.Update(t.Context(), tenant, metering.Operator, "others", metersBy([]string{"a"}))
		require.NoError(rt, err)
		require.NoError(rt, backfill(t.Context(), store, tenant, backfilling.ID))
		requireRollupsEqualARecount(t, conn, tenant)
		acme, err := store.Customers.Get(t.Context(), tenant, "acme")
		require.NoError(rt, err)
		for _, end := range []time.Time{hour.End, november.Add(time.Minute)} {
			requireWindowsEqualARecount(t, store, conn, tenant, usage.WindowQuery{
				Customer: acme.ID, Meter: m, Range: metering.Range{Start: hour.Start, End: end}, Granularity: metering.Hour, Limit: 3,
			})
		}
		requireTotalsEqualARecount(t, store, conn, tenant, metering.WholeTenant, hour)
	})
}
