package usage_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

var november = time.Date(2026, 11, 3, 10, 20, 0, 0, time.UTC)

// TestEventSearchReadsOnlyChunksOfItsWindows checks that the query of each window reads only the chunks of that
// window. It also checks that the number of windows stays small for a wide range.
func TestEventSearchReadsOnlyChunksOfItsWindows(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	writer := store.NewWriter(dbtest.WriterOptions)
	defer writer.Close()
	for week := range 6 {
		_, err := writer.Ingest(t.Context(), tenant, []metering.Event{dbtest.Event(t, "call", "acme", november.AddDate(0, 0, -7*week), "1", "", "")})
		require.NoError(t, err)
	}
	acme, err := store.Customers.Get(t.Context(), tenant, "acme")
	require.NoError(t, err)
	months := metering.Range{Start: november.AddDate(0, -6, 0), End: november.Add(time.Hour)}
	for name, of := range map[string]struct {
		filter  usage.EventFilter
		windows int
	}{
		"all":                    {usage.EventFilter{Range: months}, 19},
		"a type":                 {usage.EventFilter{Range: months, EventType: "call"}, 19},
		"a customer and a type":  {usage.EventFilter{Range: months, Customer: acme.ID, EventType: "call"}, 19},
		"a customer":             {usage.EventFilter{Range: months, Customer: acme.ID}, 1}, // the customer's index finds a page directly
		"all earlier events":     {usage.EventFilter{Range: metering.Range{Start: time.Time{}, End: november}}, 40},
		"a customer's, in a day": {usage.EventFilter{Range: metering.Range{Start: november.AddDate(0, 0, -1), End: november}, Customer: acme.ID}, 1},
	} {
		windows := usage.WindowsOfEvents(of.filter, november)
		require.LessOrEqual(t, len(windows), of.windows, name)
		end := of.filter.End
		for _, w := range windows {
			require.Equal(t, end, w.End, "%s: windows tile the range", name)
			end = w.Start
			lines, err := usage.PlanOfEvents(t.Context(), store.Events, tenant, of.filter, w)
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			require.LessOrEqual(t, len(chunksOf(plan)), 2+int(w.End.Sub(w.Start)/(7*24*time.Hour)), "%s, %s: %s", name, w, plan)
		}
		require.Equal(t, of.filter.Start, end, name)
	}
}

var planChunk = regexp.MustCompile(`on (_hyper_\w+_chunk)`)

// chunksOf returns the chunks that a plan reads.
func chunksOf(plan string) (chunks []string) {
	for _, found := range planChunk.FindAllStringSubmatch(plan, -1) {
		chunks = append(chunks, found[1])
	}
	slices.Sort(chunks)
	return slices.Compact(chunks)
}
