package main

import (
	"fmt"
	"net/http"

	"github.com/odometer-metering/odometer/dev/bench/figure"
)

// Events for calls of a language model, one shape for each set of meters. The events of the shapes differ only
// in their type.
var (
	callsByValue    = shape{eventType: "by-value", customers: 10, calls: true}
	callsByProperty = shape{eventType: "by-property", customers: 10, calls: true}
	callsByEight    = shape{eventType: "by-eight", customers: 10, calls: true}
)

// paths are the properties of a call that meters sum.
var paths = []string{"usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens", "cost"}

// properties measures ingest with meters that use property paths and filters. It compares one such meter with a
// meter that sums the event's value, and eight such meters with one.
func properties(b *bench) []figure.Figure {
	b.createMeter("by-value", callsByValue.eventType)
	b.createSelecting("by-property", callsByProperty.eventType, paths[2])
	for i := range 8 {
		b.createSelecting(fmt.Sprint("by-eight-", i), callsByEight.eventType, paths[i%len(paths)])
	}
	var copied, byValue, byProperty, byEight []float64
	for round := range rounds + 1 { // the first warms up
		var batches [][]event
		for range batchesPerRound {
			batches = append(batches, callsByValue.events(batchEvents))
		}
		rates := []float64{batchesPerRound * batchEvents / b.copy(b.copyRows(batches)).Seconds()}
		for _, s := range []shape{callsByValue, callsByProperty, callsByEight} {
			rates = append(rates, b.batchRate(s))
		}
		if round > 0 {
			copied, byValue = append(copied, rates[0]), append(byValue, rates[1])
			byProperty, byEight = append(byProperty, rates[2]), append(byEight, rates[3])
		}
	}
	return []figure.Figure{
		compare("ingest-calls-by-value-vs-copy", "events/s", byValue, copied, 0.4, never),
		compare("ingest-calls-by-property-vs-by-value", "events/s", byProperty, byValue, 0.85, never),
		compare("ingest-calls-by-eight-vs-by-one", "events/s", byEight, byProperty, 0.6, never),
	}
}

// createSelecting creates a meter with a value property and two filters. Every call meets the filters.
func (b *bench) createSelecting(slug, eventType, property string) {
	b.Helper()
	body := fmt.Sprintf(`{"slug":%q,"event_type":%q,"value_property":%q,"filters":[
		{"property":"provider","operator":"eq","values":["example"]},{"property":"stream","operator":"eq","values":[true]}]}`, slug, eventType, property)
	b.must(http.MethodPost, "/v1/meters", body, http.StatusCreated, nil)
}
