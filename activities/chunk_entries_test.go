package activities_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
)

func TestACustomerWhoIsLinkedElsewhereMeanwhileHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	writer := db.NewWriter(store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	s, stop := newSubscriber(t, store, writer, dbtest.Conn(t))
	t.Cleanup(stop)
	other, err := store.Customers.Create(t.Context(), s.tenant, metering.Operator, metering.Customer{ExternalID: "other"}, clock.Now())
	require.NoError(t, err)
	var relink sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		relink.Do(func() {
			if _, err := s.conn.Exec(t.Context(), `update customers set billing_provider_id = 'cus_2' where tenant_id = $1 and id = $2`, s.tenant, s.customer); err != nil {
				t.Error(err)
			}
		})
		s.fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ring, err := db.ParseKeyring("test:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	require.NoError(t, err)
	do := activities.New(store, ring, new(far), providers.Registered(stripe.NewProvider(stripe.New(server.URL))), 0, activities.NewMetrics(nil), s.fake.Now)
	s.RegisterActivity(do.SyncChunk)
	value, err := s.ExecuteActivity(do.SyncChunk, activities.SyncChunkInput{TenantID: s.tenant, Customers: []metering.CustomerID{s.customer, other.ID}})
	require.NoError(t, err)
	var result activities.SyncChunkResult
	require.NoError(t, value.Get(&result))
	require.Equal(t, activities.SyncChunkResult{Customers: 2, Failed: []metering.CustomerID{s.customer}}, result)
}
