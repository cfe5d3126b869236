package activities_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// hook creates a webhook of the bench's tenant with a waiting message, and returns its ID.
func (b *bench) hook(t *testing.T, sealed []byte) metering.EndpointID {
	t.Helper()
	hook, err := b.store.Webhooks.Create(t.Context(), b.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/hook", EventTypes: []metering.MessageKind{metering.MessageSyncSucceeded}, Sealed: sealed, LastFour: "abcd",
	}, b.now)
	require.NoError(t, err)
	require.NoError(t, b.store.Syncs.Record(t.Context(), b.tenant, b.customer, ledger.Answer{}, b.now, b.now))
	return hook.ID
}

func TestSendMessagesReturnsResponseOfWebhook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sealed, err := b.ring.Seal(b.tenant, seal.EndpointSecret, []byte("the endpoint's secret"))
	require.NoError(t, err)
	in := activities.SendMessagesInput{TenantID: b.tenant, EndpointID: b.hook(t, sealed)}
	b.far.answer, b.far.err = webhook.Answer{Status: 503, RetryAfter: time.Minute}, metering.Errorf(metering.CodeProviderDown, "the webhook answered 503")
	failed := run[activities.SendMessagesResult](t, b, b.do.SendMessages, in)
	require.Equal(t, "the webhook answered 503", failed.Problem)
	require.Equal(t, [3]int{0, 1, 1}, [3]int{failed.Delivered, failed.Failed, failed.Waiting})
	require.True(t, metering.Instant(b.now.Add(time.Minute)).Equal(*failed.Next), failed.Next)

	b.far.answer, b.far.err = webhook.Answer{Status: 204}, nil
	in.AtOnce = true
	require.Equal(t, activities.SendMessagesResult{Delivered: 1}, run[activities.SendMessagesResult](t, b, b.do.SendMessages, in))
	require.Equal(t, "the endpoint's secret", b.far.secret)
	require.Len(t, b.far.bodies, 2)
	require.Equal(t, b.far.bodies[0], b.far.bodies[1])
}

func TestUnreadableSecretDoesNotMarkWebhookAsFailing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hook := b.hook(t, []byte("sealed with a key that is gone"))
	_, err := b.ExecuteActivity(b.do.SendMessages, activities.SendMessagesInput{TenantID: b.tenant, EndpointID: hook})
	require.ErrorContains(t, err, "cannot be decrypted with this worker's ODOMETER_ENCRYPTION_KEYS")
	require.Empty(t, b.far.bodies)
	deliveries, err := dbtest.Items(b.store.Deliveries.List(t.Context(), b.tenant, hook, "", uuid.Nil, 10))
	require.NoError(t, err)
	require.Zero(t, deliveries[0].Attempts)
	endpoint, err := b.store.Webhooks.Get(t.Context(), b.tenant, hook)
	require.NoError(t, err)
	require.Nil(t, endpoint.FailingSince)
}
