package stripe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestSubscriptionEventIsReadAlikeInEveryAPIVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, version := range []string{"2017-04-06", "2023-10-16", "2025-03-31.basil", "2026-08-26.dahlia"} {
		payload, header, err := b.fake.Event(&stripetest.Webhook{Type: stripe.SubscriptionUpdated, Object: "sub_cus_1", APIVersion: version})
		require.NoError(t, err)
		event, err := stripe.VerifyEvent(payload, header, webhookSecret, noon)
		require.NoError(t, err)
		require.Equal(t, stripe.SubscriptionUpdated, event.Type)
		require.Equal(t, noon, event.CreatedAt)
		require.Nil(t, event.Invoice)
		require.Equal(t, "sub_cus_1", event.Subscription.ID)
		require.Equal(t, "cus_1", event.Subscription.CustomerID)
		require.Equal(t, "active", event.Subscription.Status)
		require.Len(t, event.Subscription.Items, 6)
		require.Equal(t, april, event.Subscription.Items[5].PeriodEnd)
		require.Equal(t, "mtr_delta", event.Subscription.Items[1].MeterID)
	}
}

// signed returns the signature header of a payload that was signed at noon.
func signed(payload string) string { return stripetest.Sign([]byte(payload), webhookSecret, noon) }

func TestOnlyRecentlySignedEventIsAccepted(t *testing.T) {
	t.Parallel()
	const payload = `{"id":"evt_1","object":"event","type":"charge.succeeded","api_version":null,"request":"req_1"}`
	other := stripetest.Sign([]byte(payload), "whsec_other", noon)
	for name, c := range map[string]struct {
		payload, header, secret string
		now                     time.Time
		ok                      bool
	}{
		"signed":                   {payload, signed(payload), webhookSecret, noon, true},
		"five minutes later":       {payload, signed(payload), webhookSecret, noon.Add(300 * time.Second), true},
		"while secrets are rolled": {payload, other + "," + strings.Split(signed(payload), ",")[1], webhookSecret, noon, true},
		"with an older scheme":     {payload, signed(payload) + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39", webhookSecret, noon, true},
		"later":                    {payload, signed(payload), webhookSecret, noon.Add(301 * time.Second), false},
		"earlier":                  {payload, signed(payload), webhookSecret, noon.Add(-301 * time.Second), false},
		"a byte more":              {payload + " ", signed(payload), webhookSecret, noon, false},
		"another secret":           {payload, other, webhookSecret, noon, false},
		"no secret":                {payload, stripetest.Sign([]byte(payload), "", noon), "", noon, false},
		"no header":                {payload, "", webhookSecret, noon, false},
		"no signature":             {payload, "t=1772000000", webhookSecret, noon, false},
		"nonsense":                 {payload, "a=b=c,,t=", webhookSecret, noon, false},
		"two times": {payload, "t=" + time.Unix(noon.Add(time.Hour).Unix(), 0).Format("0405") + "," + signed(payload),
			webhookSecret, noon, false},
	} {
		event, err := stripe.VerifyEvent([]byte(c.payload), c.header, c.secret, c.now)
		if c.ok {
			require.NoError(t, err, name)
			require.Equal(t, stripe.Event{ID: "evt_1", Type: "charge.succeeded"}, event)
			continue
		}
		require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(err), name)
	}
}

func TestReplayedEventWithAddedTimestampIsRefused(t *testing.T) {
	t.Parallel()
	const payload = `{"id":"evt_1","type":"charge.succeeded"}`
	later := noon.Add(24 * time.Hour)
	fresh := strings.Split(stripetest.Sign([]byte(payload), "whsec_guess", later), ",")[0]
	for _, header := range []string{fresh + "," + signed(payload), signed(payload) + "," + fresh} {
		_, err := stripe.VerifyEvent([]byte(payload), header, webhookSecret, later)
		require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(err))
	}
}

func TestSignedBodyThatIsNotEventIsInvalid(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		``, `[]`, `{}`, `{"id":"evt_1"}`, `{"id":1,"type":"invoice.created"}`,
		`{"id":"evt_1","type":"invoice.created"}`, `{"id":"evt_1","type":"invoice.created","data":{"object":{}}}`,
		`{"id":"evt_1","type":"invoice.finalized","data":{"object":{"id":"in_1","total":"canary"}}}`,
		`{"id":"evt_1","type":"customer.subscription.updated","data":{"object":[]}}`,
	} {
		_, err := stripe.VerifyEvent([]byte(payload), signed(payload), webhookSecret, noon)
		require.Equal(t, metering.CodeInvalid, metering.CodeOf(err), payload)
		require.NotContains(t, err.Error(), "canary")
	}
}

func TestExpandedObjectsAreReadAsTheirIDs(t *testing.T) {
	t.Parallel()
	const payload = `{"id":"evt_1","type":"invoice.created","account":"acct_9","livemode":true,"created":60,"data":{"object":{
		"id":"in_1","customer":{"id":"cus_1"},"subscription":{"id":"sub_1"},"total":100,"currency":"jpy","parent":null,"lines":{"data":[
		{"id":"il_1","amount":100,"quantity":null,"subscription_item":null,"price":{"id":"price_1"},"proration":true}]}}}}`
	event, err := stripe.VerifyEvent([]byte(payload), signed(payload), webhookSecret, noon)
	require.NoError(t, err)
	require.True(t, event.Livemode)
	require.Equal(t, "acct_9", event.Account)
	require.Equal(t, "cus_1", event.Invoice.CustomerID)
	require.Equal(t, "sub_1", event.Invoice.SubscriptionID)
	requireDecimal(t, "100", event.Invoice.Total)
	require.Equal(t, []stripe.InvoiceLine{{ID: "il_1", PriceID: "price_1", Amount: event.Invoice.Lines[0].Amount, Proration: true}}, event.Invoice.Lines)
}

// FuzzAnEventIsReadOrRefused checks that VerifyEvent refuses any payload with a wrong signature. For a payload with a
// valid signature, it returns an event with an id and a type, or CodeInvalid.
func FuzzAnEventIsReadOrRefused(f *testing.F) {
	f.Add([]byte(`{"id":"evt_1","type":"invoice.created","data":{"object":{"id":"in_1","total":1}}}`), "t=1,v1=ab")
	f.Add([]byte(`{"id":"evt_1","type":"customer.subscription.updated","data":{"object":{"id":"sub_1","items":{"data":[{"price":null}]}}}}`), "t=,t=")
	f.Fuzz(func(t *testing.T, payload []byte, header string) {
		if _, err := stripe.VerifyEvent(payload, header, webhookSecret, noon); metering.CodeOf(err) != metering.CodeUnauthorized {
			t.Fatalf("read what nobody signed: %v", err)
		}
		event, err := stripe.VerifyEvent(payload, signed(string(payload)), webhookSecret, noon)
		if err == nil && (event.ID == "" || event.Type == "") || err != nil && metering.CodeOf(err) != metering.CodeInvalid {
			t.Fatalf("%+v, %v", event, err)
		}
	})
}
