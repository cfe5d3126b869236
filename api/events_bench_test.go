package api

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchEvent is an event as a client of a grouped meter sends it.
func benchEvent(i int) string {
	return fmt.Sprintf(`{"event_type":"api_call","customer_id":"customer-%d","timestamp":"2026-11-23T10:%02d:%02d.123Z","value":%d.25,`+
		`"properties":{"model":"model-%d","region":"eu"},"idempotency_key":"01938f2e-7a1b-7000-8000-%012d"}`, i%100, i/60%60, i%60, i, i%4, i)
}

var benchNow = time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)

// BenchmarkDecodeEvent reads and judges an event that was sent alone.
func BenchmarkDecodeEvent(b *testing.B) {
	body := []byte(benchEvent(1))
	b.ReportAllocs()
	for b.Loop() {
		sent, err := newEventDecoder(bytes.NewReader(body)).event()
		require.NoError(b, err)
		judgeBench(b, sent)
	}
}

// BenchmarkDecodeBatch reads and judges a full batch.
func BenchmarkDecodeBatch(b *testing.B) {
	var texts []string
	for i := range maxBatch {
		texts = append(texts, benchEvent(i))
	}
	body := []byte(`{"events":[` + strings.Join(texts, ",") + `]}`)
	b.ReportAllocs()
	for b.Loop() {
		batch, err := newEventDecoder(bytes.NewReader(body)).batch()
		require.NoError(b, err)
		for _, sent := range batch.events {
			judgeBench(b, sent)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*maxBatch), "ns/event")
}

func judgeBench(b *testing.B, sent sentEvent) {
	if _, rejection := sent.judge(benchNow, 0); rejection != nil {
		b.Fatal(rejection)
	}
}
