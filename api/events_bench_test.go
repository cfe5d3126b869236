package api

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchEvent returns an event as a client of a grouped meter sends it.
func benchEvent(i int) string {
	return fmt.Sprintf(`{"event_type":"api_call","customer_id":"customer-%d","timestamp":"2026-11-23T10:%02d:%02d.123Z","value":%d.25,`+
		`"properties":{"model":"model-%d","region":"eu"},"idempotency_key":"01938f2e-7a1b-7000-8000-%012d"}`, i%100, i/60%60, i%60, i, i%4, i)
}

var benchNow = time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)

// BenchmarkDecodeEvent decodes and validates an event that is sent alone.
func BenchmarkDecodeEvent(b *testing.B) {
	body := []byte(benchEvent(1))
	b.ReportAllocs()
	for b.Loop() {
		sent, err := newEventDecoder(bytes.NewReader(body)).event()
		require.NoError(b, err)
		judgeBench(b, sent)
	}
}

// BenchmarkDecodeBatch decodes and validates a full batch. cpu-ns/event is the processor time of this process,
// which other processes affect little.
func BenchmarkDecodeBatch(b *testing.B) {
	body := benchBatch()
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		readBatch(b, body)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N*maxBatch), "cpu-ns/event")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxBatch), "ns/event")
}

// TestReadingAnEventOfABatchTakesFewAllocations is not parallel, because allocations of other tests would count.
func TestReadingAnEventOfABatchTakesFewAllocations(t *testing.T) {
	body := benchBatch()
	require.LessOrEqual(t, testing.AllocsPerRun(5, func() { readBatch(t, body) })/maxBatch, 25.0)
}

// benchBatch returns a request body with the maximum number of events.
func benchBatch() []byte {
	var texts []string
	for i := range maxBatch {
		texts = append(texts, benchEvent(i))
	}
	return []byte(`{"events":[` + strings.Join(texts, ",") + `]}`)
}

// readBatch decodes and validates the events of a request body.
func readBatch(t testing.TB, body []byte) {
	batch, err := newEventDecoder(bytes.NewReader(body)).batch()
	require.NoError(t, err)
	for _, sent := range batch.events {
		judgeBench(t, sent)
	}
}

// cpuTime returns the CPU time that the process has used in user mode.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// judgeBench validates an event, and fails if it is rejected.
func judgeBench(t testing.TB, sent sentEvent) {
	if _, rejection := sent.judge(benchNow, 0); rejection != nil {
		t.Fatal(rejection)
	}
}
