package db_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// BenchmarkIngestByDefinition ingests batches of the same kind of events for meters with different definitions.
func BenchmarkIngestByDefinition(b *testing.B) {
	nested := func(property string) metering.MeterVersion {
		return metering.MeterVersion{Aggregation: metering.Sum, ValueProperty: property, Filters: []metering.Filter{
			{Property: "provider", Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue(json.RawMessage(`"example"`))}},
			{Property: "stream", Operator: metering.FilterEq, Values: []metering.FilterValue{metering.ParseFilterValue(json.RawMessage(`true`))}},
		}}
	}
	eight := make([]metering.MeterVersion, 8)
	for i := range eight {
		eight[i] = nested([]string{"usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens", "cost"}[i%4])
	}
	for _, c := range []struct {
		name   string
		meters []metering.MeterVersion
	}{
		{"plain", []metering.MeterVersion{{Aggregation: metering.Sum}}},
		{"nested value and two filters", []metering.MeterVersion{nested("usage.total_tokens")}},
		{"eight plain meters", slices.Repeat([]metering.MeterVersion{{Aggregation: metering.Sum}}, 8)},
		{"eight meters with paths and filters", eight},
	} {
		b.Run(c.name, func(b *testing.B) { benchIngest(b, c.meters) })
	}
}

func benchIngest(b *testing.B, meters []metering.MeterVersion) {
	b.Helper()
	const batch = 1000
	store := dbtest.Open(b)
	tenant := dbtest.Tenant(b, store).ID
	for i, g := range meters {
		_, err := store.Meters.Create(b.Context(), tenant, metering.Operator, metering.Meter{Slug: fmt.Sprint("m", i), EventType: "llm", Version: g})
		require.NoError(b, err)
	}
	writer := store.NewWriter(dbtest.WriterOptions)
	defer writer.Close()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		events := make([]metering.Event, batch)
		for i := range events {
			n++
			events[i] = dbtest.Event(b, "llm", fmt.Sprint("customer-", n%100), november.Add(time.Duration(n%3600)*time.Second), "1", uuid.NewString(), fmt.Sprintf(
				`{"model":"large","provider":"example","stream":true,"usage":{"prompt_tokens":%d,"completion_tokens":310,"total_tokens":%d},"cost":0.0%d00000000000004}`, n, n+310, n))
		}
		b.StartTimer()
		_, err := writer.Ingest(b.Context(), tenant, events)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}
