package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func BenchmarkLabDecode(b *testing.B) {
	var list []map[string]any
	for i := range 1000 {
		list = append(list, map[string]any{"event_type": "request", "customer_id": fmt.Sprintf("customer-%d", i%10), "timestamp": time.Now().UTC().Format(time.RFC3339Nano), "value": 1.5,
			"properties": map[string]string{"model": "small", "region": "eu"}, "idempotency_key": fmt.Sprintf("0198aaaa-bbbb-cccc-dddd-%012d", i)})
	}
	body, _ := json.Marshal(map[string]any{"events": list})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := decodeBatch(bytes.NewReader(body)); err != nil {
				b.Fatal(err)
			}
		}
	})
	batch, _ := decodeBatch(bytes.NewReader(body))
	now := time.Now()
	b.Run("judge", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for _, s := range batch {
				if _, r := s.judge(now); r != nil {
					b.Fatal(r)
				}
			}
		}
	})
}
