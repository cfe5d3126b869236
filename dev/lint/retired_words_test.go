package lint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/lint"
)

func TestPartsSplitsIdentifiersAndText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"ClosedAt": {"closed", "at"}, "closed_at": {"closed", "at"}, "is closed, at": {"is", "closed", "at"},
		"meterVersionByID": {"meter", "version", "by", "id"}, "HMACSecrets": {"hmac", "secrets"}, "APIKeys": {"api", "keys"}, "x-rate-limit": {"x", "rate", "limit"},
	} {
		require.Equal(t, want, lint.Parts(text), text)
	}
}

func TestRetiredWordsAreFoundInAnySpelling(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"frozen_at", "FrozenAt", "isFrozen", "it was frozen.", "`frozen`"} {
		require.Equal(t, []string{"frozen"}, lint.In(text, lint.Anywhere), text)
	}
	require.Equal(t, []string{"events per minute"}, lint.In("EventsPerMinute", lint.Anywhere))
	require.Empty(t, lint.In("the zone's kinds, backfilling", lint.Anywhere))
	require.Equal(t, []string{"zone"}, lint.In("zone", lint.Fields))
	require.Empty(t, lint.In("timezone", lint.Fields))
}

func TestPhrasesInFindsDiscouragedPhrases(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Other values are 422.", "A second webhook is 409 if it exists", "It ends. Of these reports, some remain.",
		"in another currency than yours", "20 a minute of a tenant",
	} {
		require.Len(t, lint.PhrasesIn(text), 1, text)
	}
	for _, text := range []string{"Other values return 422.", "The limit is 429 units", "Types other than these", "20 a minute per tenant"} {
		require.Empty(t, lint.PhrasesIn(text), text)
	}
}
