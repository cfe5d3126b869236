package api_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/metering"
)

// TestTheDocumentHasTheSetsOfTheCode fails where an enum is written down a
// second time, and so may come to differ.
func TestTheDocumentHasTheSetsOfTheCode(t *testing.T) {
	t.Parallel()
	messages, roles := metering.MessageKind("").Values(), metering.Role("").Values()
	sets := [][]string{
		words(metering.Aggregation("").Values()), words(metering.DeliveryStatus("").Values()), words(metering.DisabledBecause("").Values()),
		words(metering.EntryStatus("").Values()), words(metering.Granularity("").Values()), words(metering.LatePolicy("").Values()),
		words(metering.ProviderKind("").Values()), words(metering.Scope("").Values()),
		words(metering.SyncStatus("").Values()), words(metering.Trigger("").Values()),
		words(messages), words(append(messages, metering.WebhookTest)), // what endpoints choose, and what they are sent
		words(roles), words(roles[1:]), // all, and all but the owner's
		words([]metering.MeterVersionStatus{metering.Backfilling, metering.Complete}),
		{"ok"}, {"ok", "unavailable"}, {"ok", "unavailable", "not_migrated"}, {"json", "csv"}, // the API's own
	}
	v31, v30, err := api.Documents()
	require.NoError(t, err)
	used := map[int]bool{}
	for _, document := range [][]byte{v31, v30} {
		var read any
		require.NoError(t, json.Unmarshal(document, &read))
		eachEnum(read, func(enum []string) {
			found := slices.IndexFunc(sets, func(set []string) bool { return slices.Equal(set, enum) })
			require.NotEqual(t, -1, found, "no set in the code is %v", enum)
			used[found] = true
		})
	}
	require.Len(t, used, len(sets), "some sets are not in the document")
}

func words[T ~string](values []T) (words []string) {
	for _, v := range values {
		words = append(words, string(v))
	}
	return words
}

func eachEnum(document any, visit func([]string)) {
	switch node := document.(type) {
	case map[string]any:
		if enum, ok := node["enum"].([]any); ok {
			visit(texts(enum))
		}
		for _, value := range node {
			eachEnum(value, visit)
		}
	case []any:
		for _, value := range node {
			eachEnum(value, visit)
		}
	}
}

func texts(list []any) (texts []string) {
	for _, value := range list {
		texts = append(texts, value.(string))
	}
	return texts
}
