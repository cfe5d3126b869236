package registry_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/tallytest"
)

// canary is a word in the responses of the provider. Errors and stored answers must not contain it.
const canary = "canary"

var began = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// secret is a secret with which every provider can send. Validation may need one of secrets instead.
var secret = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))

// destinations contains a destination of a quantity report for each provider that does not receive
// statements.
var destinations = map[metering.ProviderKind]billing.Destination{
	metering.Stripe: {Target: "mtr_1", Method: stripe.MeterDelta, Counting: billing.Adds, Address: map[string]string{"item_id": "si_1", "event_name": "calls"}},
	tallytest.Kind:  {Target: "calls", Method: tallytest.Sum, Counting: billing.Adds},
}

// forEachProvider runs a test for every registered provider, and for tallytest, which is not registered. The handler
// answers their calls.
func forEachProvider(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, p providers.Provider, c providers.Credentials)) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	all := registry.New(providers.Guard{AllowLoopback: true}, server.URL)
	all[tallytest.Kind] = tallytest.New(server.URL)
	for kind, p := range all {
		t.Run(string(kind), func(t *testing.T) { test(t, p, providers.Credentials{Address: server.URL, Secret: secret}) })
	}
}

// report returns a message that the provider can frame: a statement with late usage, or a quantity report.
func report(p providers.Provider) billing.Message {
	period := metering.Range{Start: began, End: began.AddDate(0, 1, 0)}
	line := billing.Line{
		MeterID: 7, MeterSlug: "calls", Usage: metering.MustDecimal("1.5"), Events: 3, Quantity: metering.MustDecimal("1.5"),
		UnitPrice: metering.MustDecimal("2"), Charge: metering.MustDecimal("3"), Amount: metering.MustDecimal("3"), Currency: "USD",
	}
	m := billing.Message{
		ID: uuid.MustParse("0198f0a0-0000-7000-8000-000000000001"), TenantID: 1, CustomerExternalID: "acme", Sequence: 4,
		Periods: []metering.Range{{Start: began.AddDate(0, -1, 0), End: began}, period}, Meter: metering.Meter{ID: 7, Slug: "calls"},
		Timezone: time.UTC, Now: began.Add(time.Hour),
	}
	m.Report = billing.Report{
		Series: billing.Series{Kind: billing.StatementReport, Connection: 1, Counting: billing.Replaces, Period: began, Window: period},
		Lines:  []billing.Line{line}, Quantity: line.Quantity, Currency: "USD", Of: period, Deadline: period.End.AddDate(0, 0, 3),
	}
	if p.Describe().Statements {
		late := line
		late.Closed = began.AddDate(0, -1, 0)
		m.Lines = append(m.Lines, late)
		return m
	}
	d := destinations[p.Describe().Kind]
	m.Kind, m.Customer, m.Target, m.Method, m.Counting, m.Destination = billing.QuantityReport, "cus_1", d.Target, d.Method, d.Counting, d
	return m
}

// respondTeapot is the handler of tests that make no call.
func respondTeapot(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }

func TestProviderDescriptionIsComplete(t *testing.T) {
	t.Parallel()
	forEachProvider(t, respondTeapot, func(t *testing.T, p providers.Provider, _ providers.Credentials) {
		d := p.Describe()
		require.NotEmpty(t, d.Kind)
		require.NotEmpty(t, d.Name)
		require.Positive(t, d.AtOnce)
		require.Positive(t, d.Timeout)
		require.LessOrEqual(t, d.Timeout, 25*time.Second, "a worker that stops waits for it")
		if !d.Statements {
			require.Positive(t, d.Remembers)
			require.Positive(t, d.CountsWithin)
		}
	})
}

// TestSettingsHaveUniqueUsesAndConsistentNames checks that a provider has at most one setting for each use. It also
// checks that a setting's name has one meaning in the API for all providers.
func TestSettingsHaveUniqueUsesAndConsistentNames(t *testing.T) {
	t.Parallel()
	taken := map[string]providers.Setting{"id": {}, "type": {}, "account": {}, "secret_last_four": {}, "validated_at": {}, "created_at": {},
		"webhook_url": {}, "webhook_events": {}, "webhook_secret_last_four": {}, "livemode": {}, "new_receiver": {}}
	forEachProvider(t, respondTeapot, func(t *testing.T, p providers.Provider, _ providers.Credentials) {
		uses := map[providers.Use]bool{}
		for _, s := range p.Describe().Settings {
			require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, s.Name)
			require.NotEmpty(t, s.Doc)
			require.NotEqual(t, s.MaxLength > 0 || s.Max > 0, len(s.Values) > 0, "a length, the highest number, or the values that it can have")
			require.Contains(t, []providers.Use{
				providers.Address, providers.CallSecret, providers.EventSecret, providers.Mapping,
				providers.Bills, providers.Product, providers.Products, providers.TaxBehavior, providers.TaxCode, providers.CollectionMethod, providers.DaysUntilDue,
			}, s.Use)
			require.False(t, uses[s.Use], "%s is another of its use", s.Name)
			uses[s.Use] = true
			require.True(t, s.Make == nil || s.Use == providers.CallSecret)
			if other, known := taken[s.Name]; known {
				require.Equal(t, [3]any{other.Use, other.MaxLength, other.Values}, [3]any{s.Use, s.MaxLength, s.Values}, "%s is something else at another provider", s.Name)
			}
			taken[s.Name] = s
		}
		require.True(t, uses[providers.CallSecret])
		events, sends := p.(providers.Events)
		require.Equal(t, sends, uses[providers.EventSecret])
		if sends {
			require.NotEmpty(t, events.Signals().Header)
			require.NotEmpty(t, events.Signals().Types)
		}
	})
}

// secrets contains valid secrets of the providers that do not accept every secret.
var secrets = map[metering.ProviderKind]providers.Secrets{
	metering.Stripe: {Call: "sk_test_" + canary, Event: "whsec_" + canary + canary},
}

// TestValidateReturnsErrorCodeOfProviderResponse checks the error code and the identity for each status of the
// provider's response. No error contains text of the response or the secret.
func TestValidateReturnsErrorCodeOfProviderResponse(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]metering.Code{
		http.StatusOK: "", http.StatusUnauthorized: metering.CodeProviderRefuse, http.StatusTooManyRequests: metering.CodeProviderDown,
		http.StatusBadGateway: metering.CodeProviderDown, 0: metering.CodeProviderDown, // the connection breaks
	} {
		far := func(w http.ResponseWriter, _ *http.Request) {
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"id":"acct_1","error":{"message":"` + canary + `","code":"` + canary + `!"}}`))
		}
		forEachProvider(t, far, func(t *testing.T, p providers.Provider, c providers.Credentials) {
			with, has := secrets[p.Describe().Kind]
			if !has {
				with.Call = c.Secret
			}
			identity, err := p.Validate(t.Context(), providers.Settings{Address: c.Address, Now: began}, with)
			require.Equal(t, code, metering.CodeOf(err), "%d: %v", status, err)
			if err != nil {
				require.Empty(t, identity)
				require.NotContains(t, err.Error(), canary)
				require.NotContains(t, err.Error(), c.Secret)
				return
			}
			want := "acct_1"
			if _, has := p.Describe().Setting(providers.Address); has {
				want = "" // a provider with an address returns no account
			}
			require.Equal(t, want, identity.Account)
			require.Contains(t, []providers.Mode{"", providers.Live, providers.Test}, identity.Mode)
		})
	}
}

func TestFrameDependsOnlyOnReport(t *testing.T) {
	t.Parallel()
	calls := func(http.ResponseWriter, *http.Request) { t.Error("a call was made") }
	forEachProvider(t, calls, func(t *testing.T, p providers.Provider, _ providers.Credentials) {
		m := report(p)
		first, err := p.Frame(m)
		require.NoError(t, err)
		require.True(t, json.Valid(first.Body), "%s", first.Body)
		again, err := p.Frame(report(p))
		require.NoError(t, err)
		require.Equal(t, string(first.Body), string(again.Body))
		require.True(t, first.Timestamp.Equal(again.Timestamp))
		require.True(t, reflect.DeepEqual(report(p), m), "framing changes nothing of the report")
	})
}

func TestCustomerWithoutProviderIDIsReadWithoutCall(t *testing.T) {
	t.Parallel()
	calls := func(http.ResponseWriter, *http.Request) { t.Error("a call was made") }
	forEachProvider(t, calls, func(t *testing.T, p providers.Provider, c providers.Credentials) {
		side, err := p.Read(t.Context(), c, providers.Question{Meters: []metering.Meter{{ID: 7, Slug: "calls"}}})
		require.NoError(t, err)
		if p.Describe().Statements {
			return
		}
		require.Len(t, side.Destinations, 1)
		require.Equal(t, metering.MeterID(7), side.Destinations[0].MeterID)
		require.NotEmpty(t, side.Destinations[0].Excluded)
	})
}

func TestResponseStatusHasSameMeaningAtAllProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   metering.Code
		own    bool
		wait   time.Duration
	}{
		{http.StatusOK, "", false, 0},
		{http.StatusTooManyRequests, metering.CodeProviderDown, false, 7 * time.Second},
		{http.StatusServiceUnavailable, metering.CodeProviderDown, false, 7 * time.Second},
		{http.StatusUnauthorized, metering.CodeProviderRefuse, false, 7 * time.Second},
		{http.StatusUnprocessableEntity, metering.CodeProviderRefuse, true, 7 * time.Second},
		{0, metering.CodeProviderDown, false, 0}, // the connection breaks
	} {
		far := func(w http.ResponseWriter, _ *http.Request) {
			if c.status == 0 {
				panic(http.ErrAbortHandler)
			}
			if c.wait > 0 {
				w.Header().Set("Retry-After", "7")
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(`{"error":{"message":"` + canary + `","code":"` + canary + `!"},"id":"` + canary + `"}`))
		}
		forEachProvider(t, far, func(t *testing.T, p providers.Provider, credentials providers.Credentials) {
			m := report(p)
			framed, err := p.Frame(m)
			require.NoError(t, err)
			outcome := p.Send(t.Context(), credentials, providers.Sending{
				Series: m.Series, ReportID: m.ID, Body: framed.Body, FirstSentAt: m.Now, Now: m.Now,
			})
			require.NotContains(t, outcome.Answer, canary)
			if c.code == "" {
				require.NoError(t, outcome.Err)
				require.Equal(t, billing.Accepted, outcome.State)
				require.NotEmpty(t, outcome.Answer)
				return
			}
			require.Empty(t, outcome.State)
			require.Equal(t, c.code, metering.CodeOf(outcome.Err), "%v", outcome.Err)
			require.NotContains(t, outcome.Err.Error(), canary)
			require.Equal(t, c.own, errors.As(outcome.Err, new(providers.OwnRefusal)))
			var later providers.RetryLater
			errors.As(outcome.Err, &later)
			require.Equal(t, c.wait, later.Wait)
		})
	}
}
