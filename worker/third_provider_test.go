package worker_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/tallytest"
)

// TestSyncReportsToThirdProviderRegisteredByTest syncs a customer to a provider that only tests register.
func TestSyncReportsToThirdProviderRegisteredByTest(t *testing.T) {
	t.Parallel()
	far := tallytest.NewServer()
	server := httptest.NewServer(far)
	t.Cleanup(server.Close)
	s := newSystem(t)
	third := tallytest.New(server.URL)
	s.third = third
	sealed, err := s.keyring.Seal(s.tenant, seal.ProviderSecret, []byte("secret"))
	require.NoError(t, err)
	_, err = s.store.Providers.Save(t.Context(), s.tenant, metering.Operator, metering.Provider{
		Kind: tallytest.Kind, Statements: third.Describe().Statements, Account: "tally-1", SealedSecret: sealed, LastFour: "cret", ValidatedAt: time.Now(),
	})
	require.NoError(t, err)
	scale := int32(3)
	_, _, err = s.store.Meters.Update(t.Context(), s.tenant, metering.Operator, s.meter.Slug, catalog.MeterChange{UsageScale: &scale})
	require.NoError(t, err)
	s.work()

	s.use("1.2504")
	unnamed := s.await(s.request())
	require.Equal(t, map[string]string{s.meter.Slug: "the customer has no account at Tally"}, excludedOf(unnamed))

	named := "acme at Tally"
	far.Sign(named, metering.Range{Start: time.Now().AddDate(0, 0, -10).UTC().Truncate(time.Second), End: time.Now().AddDate(0, 0, 20).UTC().Truncate(time.Second)})
	_, _, err = s.store.Customers.Upsert(t.Context(), s.tenant, metering.Operator,
		s.customer.ExternalID, catalog.CustomerChange{Link: true, BillingProviderID: &named}, time.Now())
	require.NoError(t, err)
	require.Equal(t, []string{"api-calls sum 1.25/1.25 counted"}, linesOf(s.counted(s.request())))
	require.Equal(t, "1.25", far.Total(named, s.meter.Slug).String())

	far.Lose(1)
	s.use("0.0004")
	require.Equal(t, []string{"api-calls sum 0.001/1.251 counted"}, linesOf(s.counted(s.request())), "1.2508 are 1.251")
	require.Equal(t, "1.251", far.Total(named, s.meter.Slug).String(), "it was sent twice and counted once")
	require.Equal(t, 2, far.Reports())

	require.Len(t, s.await(s.request()).Lines, 1)
	require.Equal(t, 2, far.Reports(), "nothing has changed, so nothing is sent")
}
