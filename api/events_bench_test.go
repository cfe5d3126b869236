package api

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// benchBatch is a full batch as a client of a grouped meter sends it.
func benchBatch() []byte {
	var body bytes.Buffer
	body.WriteString(`{"events":[`)
	for i := range maxBatch {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"event_type":"api_call","customer_id":"customer-%d","timestamp":"2026-11-23T10:%02d:%02d.123Z","value":%d.25,`+
			`"properties":{"model":"model-%d","region":"eu"},"idempotency_key":"01938f2e-7a1b-7000-8000-%012d"}`, i%100, i/60%60, i%60, i, i%4, i)
	}
	body.WriteString(`]}`)
	return body.Bytes()
}

// BenchmarkDecodeBatch reads and judges a batch; its figures are of one event.
func BenchmarkDecodeBatch(b *testing.B) {
	body, now := benchBatch(), time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	var retention metering.Retention
	b.ReportAllocs()
	for b.Loop() {
		batch, err := newEventDecoder(bytes.NewReader(body)).batch()
		require.NoError(b, err)
		for _, sent := range batch.events {
			if _, rejection := sent.judge(now, retention); rejection != nil {
				b.Fatal(rejection)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxBatch), "ns/event")
}
