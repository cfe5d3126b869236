package main

import (
	"context"
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
func properties(ctx context.Context, b *bench) ([]figure.Figure, error) {
	if err := b.createMeter("by-value", callsByValue.eventType); err != nil {
		return nil, err
	}
	if err := b.createSelecting("by-property", callsByProperty.eventType, paths[2]); err != nil {
		return nil, err
	}
	for i := range 8 {
		if err := b.createSelecting(fmt.Sprint("by-eight-", i), callsByEight.eventType, paths[i%len(paths)]); err != nil {
			return nil, err
		}
	}
	var copied, byValue, byProperty, byEight []float64
	for round := range rounds + 1 { // the first warms up
		var batches [][]event
		for range batchesPerRound {
			batches = append(batches, callsByValue.events(batchEvents))
		}
		took, err := b.copy(ctx, b.copyRows(batches))
		if err != nil {
			return nil, fmt.Errorf("copy: %w", err)
		}
		rates := []float64{batchesPerRound * batchEvents / took.Seconds()}
		for _, s := range []shape{callsByValue, callsByProperty, callsByEight} {
			rate, err := b.batchRate(s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.eventType, err)
			}
			rates = append(rates, rate)
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
	}, nil
}

// createSelecting creates a meter with a value property and two filters. Every call meets the filters.
func (b *bench) createSelecting(slug, eventType, property string) error {
	body := fmt.Sprintf(`{"slug":%q,"event_type":%q,"value_property":%q,"filters":[
		{"property":"provider","operator":"eq","values":["example"]},{"property":"stream","operator":"eq","values":[true]}]}`, slug, eventType, property)
	if err := b.call(http.MethodPost, "/v1/meters", body, http.StatusCreated, nil); err != nil {
		return fmt.Errorf("create meter: %w", err)
	}
	return nil
}
