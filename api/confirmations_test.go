package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// monthIn returns the calendar month of now in a time zone.
func monthIn(t *testing.T, now time.Time, zone string) metering.Range {
	t.Helper()
	location, err := metering.LoadLocation(zone)
	require.NoError(t, err)
	return billing.CalendarPeriod(now, location)
}

// confirmed sends a request, and repeats it with the token if it needs a confirmation.
func (b *bundle) confirmed(t testing.TB, method, path, body string) answer {
	t.Helper()
	a := b.send(t, method, path, body)
	if !strings.Contains(a.body, `"confirmation_required"`) {
		return a
	}
	return b.send(t, method, path, withToken(t, body, a.confirmation(t).Token))
}

// unconfirmed sends a request that needs a confirmation, and returns the confirmation.
func (b *bundle) unconfirmed(t testing.TB, method, path, body string) api.Confirmation {
	t.Helper()
	return b.send(t, method, path, body).confirmation(t)
}

// confirmation returns the confirmation that the response requires.
func (a answer) confirmation(t testing.TB) api.Confirmation {
	t.Helper()
	p := a.problem(t, 409, "confirmation_required")
	require.NotNil(t, p.Confirmation)
	require.Contains(t, p.Detail, "repeat the request with confirm set to confirmation.token")
	return *p.Confirmation
}

// withToken adds a confirmation token to a JSON body.
func withToken(t testing.TB, body, token string) string {
	t.Helper()
	fields := map[string]json.RawMessage{}
	if body != "" {
		require.NoError(t, json.Unmarshal([]byte(body), &fields))
	}
	fields["confirm"] = json.RawMessage(fmt.Sprintf("%q", token))
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}

// changesOf returns the changes of a confirmation, each as "currency before after customers".
func changesOf(c api.Confirmation) string {
	var each []string
	for _, i := range c.Changes {
		each = append(each, fmt.Sprint(i.Currency, " ", i.Before, " ", i.After, " ", i.Customers))
	}
	return strings.Join(each, ", ")
}

const setPrice, someTerms = "/v1/meters/calls/pricing", `{"base_price":49,"overage_rate":0.5}`

// priceless returns a tenant with the meter and the customers of addUnpriced.
func priceless(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.addUnpriced(t)
	return b
}

// addUnpriced adds a meter without a price and two customers. Only acme has usage.
func (b *bundle) addUnpriced(t *testing.T) {
	t.Helper()
	b.meter(t, "calls", "call")
	for _, name := range []string{"acme", "idle"} {
		require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"`+name+`"}`).status)
	}
	b.ingest(t, "/v1/events", `{"customer_id":"acme","event_type":"call","value":2}`)
}

func TestFirstPriceRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	period := billing.CalendarPeriod(b.now(), time.UTC)
	c := b.unconfirmed(t, "PUT", setPrice, someTerms)
	require.Equal(t, "USD 0 99 2", changesOf(c))
	require.Equal(t, 2, c.Customers)
	require.Equal(t, []api.ChangedPeriods{{Start: period.Start, End: period.End, Customers: 2}}, c.Periods)
	require.False(t, c.AsOf.Before(b.clock.began))
	require.Empty(t, b.pricing(t, "GET", setPrice, "").Versions, "nothing is set")
	require.NotContains(t, b.send(t, "GET", "/v1/audit-log", "").body, "price.set")

	set := b.send(t, "PUT", setPrice, withToken(t, someTerms, c.Token))
	require.Equal(t, 200, set.status, set.body)
	require.Equal(t, "50 USD", b.preview(t))
}

// TestWriteThatChangesNoChargeNeedsNoConfirmation checks that a write needs no confirmation unless it changes
// how begun billing periods are charged. Neither a write before the first customer exists nor a free price does so.
func TestWriteThatChangesNoChargeNeedsNoConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ok := func(method, path, body string) {
		t.Helper()
		a := b.send(t, method, path, body)
		require.Less(t, a.status, 300, "%s %s: %s", method, path, a.body)
	}
	ok("POST", "/v1/meters", `{"slug":"calls","event_type":"call"}`)
	ok("PUT", setPrice, someTerms)
	ok("POST", "/v1/plans", `{"slug":"pro"}`)
	ok("PUT", "/v1/plans/pro/pricing/calls", `{"base_price":9}`)
	ok("POST", "/v1/customers", `{"external_id":"acme"}`)
	ok("PUT", setPrice, `{"base_price":60}`)                                                              // from the next period on
	ok("PUT", setPrice, `{"base_price":49,"overage_rate":0.50,"effective_from":"2020-01-01T00:00:00Z"}`)  // the same terms
	ok("PUT", "/v1/plans/pro/pricing/calls", `{"base_price":99,"effective_from":"2020-01-01T00:00:00Z"}`) // no customer has the plan
	ok("PUT", "/v1/customers/acme/plan", `{"plan":null}`)                                                 // acme already has no plan
	ok("POST", "/v1/meters", `{"slug":"free","event_type":"free"}`)
	ok("PUT", "/v1/meters/free/pricing", `{"base_price":0,"included_units":5,"currency":"JPY"}`)
	b.unconfirmed(t, "PUT", "/v1/meters/free/pricing", `{"overage_rate":1,"effective_from":"2020-01-01T00:00:00Z"}`)
}

// TestRateRequiresConfirmationEvenWithoutUsage checks that a rate needs a confirmation although the charges are 0
// before and after. Later usage is charged at the rate.
func TestRateRequiresConfirmationEvenWithoutUsage(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	b.meter(t, "other", "other")
	c := b.unconfirmed(t, "PUT", "/v1/meters/other/pricing", `{"overage_rate":3}`)
	require.Equal(t, 2, c.Customers)
	require.Empty(t, c.Changes)
}

// TestCurrencyChangeOfLaterPeriodsRequiresConfirmation checks that no write silently charges later billing periods in a
// currency other than that in which the customers are billed.
func TestCurrencyChangeOfLaterPeriodsRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.meter(t, "storage", "stored")
	b.pricing(t, "PUT", setPrice, `{"overage_rate":1,"currency":"EUR"}`)
	for _, customer := range []string{"acme", "contoso"} {
		require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"`+customer+`"}`).status)
	}
	next := `,"effective_from":"` + billing.CalendarPeriod(b.now(), time.UTC).End.Format(time.RFC3339) + `"}`
	refused := func(method, path, body string, customers int) {
		t.Helper()
		a := b.send(t, method, path, body)
		c := a.confirmation(t)
		require.Equal(t, customers, c.Customers)
		require.Empty(t, c.Periods)
		require.Empty(t, c.Changes)
		require.Contains(t, a.body, fmt.Sprintf("%d customer(s) are billed in EUR and would be charged in USD", customers))
	}
	ok := func(method, path, body string) {
		t.Helper()
		a := b.send(t, method, path, body)
		require.Less(t, a.status, 300, a.body)
	}
	const own, ofPlan = "/v1/customers/acme/pricing/calls", "/v1/plans/pro/pricing/calls"
	ok("PUT", setPrice, `{"overage_rate":2}`)
	ok("PUT", setPrice, `{"overage_rate":2,"currency":"EUR"}`)
	refused("PUT", setPrice, `{"overage_rate":2,"currency":"USD"}`, 2)
	ok("PUT", "/v1/meters/storage/pricing", `{"overage_rate":2`+next) // no provider puts both meters on one invoice
	ok("PUT", own, `{"overage_rate":3`+next)
	refused("PUT", own, `{"overage_rate":3,"currency":"USD"`+next, 1)

	ok("POST", "/v1/plans", `{"slug":"pro"}`)
	ok("PUT", ofPlan, `{"overage_rate":4,"currency":"USD"}`)
	refused("PUT", "/v1/customers/contoso/plan", `{"plan":"pro"`+next, 1)
	ok("PUT", "/v1/customers/acme/plan", `{"plan":"pro"`+next)
	later := `{"effective_from":"` + b.now().AddDate(0, 0, 90).UTC().Format(time.RFC3339) + `"}`
	refused("POST", own+"/end", later, 1)
	require.Equal(t, 200, b.confirmed(t, "POST", own+"/end", later).status)
}

func TestConfirmationTokenIsForOneChangeAndTenant(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`)
	b.meter(t, "other", "other")
	other := b.replica(t, func(*api.Deps) {})
	other.tenant = dbtest.Tenant(t, b.store)
	other.key = other.newKey(t, metering.ScopeAdmin)
	token := b.unconfirmed(t, "PUT", setPrice, someTerms).Token
	altered := "A" + token[1:]
	if altered == token {
		altered = "B" + token[1:]
	}
	for _, wrong := range []struct{ path, body, token string }{
		{setPrice, someTerms, altered},
		{setPrice, someTerms, token[:20]},
		{setPrice, `{"base_price":50,"overage_rate":0.5}`, token},
		{setPrice, `{"base_price":49,"overage_rate":0.5,"currency":"EUR"}`, token},
		{"/v1/meters/other/pricing", someTerms, token},
	} {
		c := b.unconfirmed(t, "PUT", wrong.path, withToken(t, wrong.body, wrong.token))
		require.NotEqual(t, wrong.token, c.Token)
	}
	other.meter(t, "calls", "call")
	other.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	require.NotEqual(t, token, other.unconfirmed(t, "PUT", setPrice, withToken(t, someTerms, token)).Token)

	require.Equal(t, 200, b.send(t, "PUT", setPrice, withToken(t, `{"overage_rate":0.50,"base_price":49.0}`, token)).status, "the same terms, otherwise written")
	again := b.send(t, "PUT", setPrice, withToken(t, someTerms, token))
	require.Equal(t, 200, again.status, "what is so already charges nobody otherwise: %s", again.body)
	b.unconfirmed(t, "PUT", setPrice, withToken(t, `{"base_price":1,"effective_from":"2020-01-01T00:00:00Z"}`, token))
}

// TestConfirmationTokenExpiresOnCatalogChangeOrNewPeriod checks that a token becomes invalid when the catalog changes
// or another billing period begins. Usage does not affect the token.
func TestConfirmationTokenExpiresOnCatalogChangeOrNewPeriod(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	b.meter(t, "other", "other")
	token := b.unconfirmed(t, "PUT", setPrice, someTerms).Token
	require.Equal(t, 200, b.confirmed(t, "PUT", "/v1/meters/other/pricing", `{"base_price":1}`).status)
	c := b.unconfirmed(t, "PUT", setPrice, withToken(t, someTerms, token))
	require.NotEqual(t, token, c.Token, "another change came first")

	for i := range 20 {
		b.ingest(t, "/v1/events", fmt.Sprintf(`{"customer_id":"new-%d","event_type":"call","value":7}`, i%5))
	}
	moved := b.unconfirmed(t, "PUT", setPrice, someTerms)
	require.Equal(t, c.Token, moved.Token, "events are counted meanwhile, and customers come")
	require.Equal(t, 7, moved.Customers)

	b.ahead.Store(int64(32 * 24 * time.Hour))
	later := b.unconfirmed(t, "PUT", setPrice, withToken(t, someTerms, c.Token))
	require.NotEqual(t, c.Token, later.Token, "another period has begun")
	require.Equal(t, 200, b.send(t, "PUT", setPrice, withToken(t, someTerms, later.Token)).status)
}

func TestOnlyOneOfConcurrentConfirmedWritesSucceeds(t *testing.T) {
	t.Parallel()
	b := priceless(t)
	const n = 6
	bodies := make([]string, n)
	for i := range n {
		body := fmt.Sprintf(`{"base_price":%d,"effective_from":"2020-01-01T00:00:00Z"}`, 10+i)
		bodies[i] = withToken(t, body, b.unconfirmed(t, "PUT", setPrice, body).Token)
	}
	answers := make([]answer, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i] = b.send(t, "PUT", setPrice, bodies[i]) })
	}
	all.Wait()
	won := 0
	for _, a := range answers {
		if a.status == 200 {
			won++
			continue
		}
		require.Equal(t, 2, a.confirmation(t).Customers)
	}
	require.Equal(t, 1, won)
	require.Len(t, b.pricing(t, "GET", setPrice, "").Versions, 1)
}

// TestChangeOfChargedMeterRequiresConfirmation checks that changing, archiving or unarchiving a meter needs a
// confirmation if usage of the meter is charged.
func TestChangeOfChargedMeterRequiresConfirmation(t *testing.T) {
	t.Parallel()
	const meter = "/v1/meters/calls"
	ok := func(b *bundle, method, path, body string) {
		t.Helper()
		a := b.send(t, method, path, body)
		require.Equal(t, 200, a.status, "%s %s: %s", method, path, a.body)
	}
	b := priceless(t)
	ok(b, "PATCH", meter, `{"aggregation":"count"}`)
	ok(b, "POST", meter+"/unarchive", "")
	b = priceless(t)
	b.confirmed(t, "PUT", setPrice, `{"base_price":49}`)
	ok(b, "PATCH", meter, `{"aggregation":"count"}`) // the base price does not depend on the usage

	b = priceless(t)
	b.confirmed(t, "PUT", setPrice, someTerms)
	ok(b, "PATCH", meter, `{"name":"Calls","aggregation":"sum","usage_scale":3,"group_by":["model"]}`)
	c := b.unconfirmed(t, "PATCH", meter, `{"aggregation":"count"}`)
	require.Equal(t, 2, c.Customers)
	require.Equal(t, "USD 50 49.5 1", changesOf(c))
	require.Equal(t, "sum", string(b.sent(t, 200, "GET", meter, "").Aggregation), "nothing is changed")
	b.unconfirmed(t, "PATCH", meter, withToken(t, `{"aggregation":"count","name":"another"}`, c.Token))
	ok(b, "PATCH", meter, withToken(t, `{"aggregation":"count"}`, c.Token))
	ok(b, "PATCH", meter, `{"aggregation":"count"}`) // it already counts events
	b.unconfirmed(t, "PATCH", meter, `{"aggregation":"sum"}`)

	b.key = b.newKey(t, metering.ScopeReadWrite)
	b.send(t, "PATCH", meter, `{"aggregation":"sum"}`).problem(t, 403, "forbidden") // the scope read_write lacks pricing:read
	ok(b, "PATCH", meter, `{"name":"All calls"}`)

	b = priceless(t)
	b.confirmed(t, "PUT", setPrice, someTerms)
	c = b.unconfirmed(t, "POST", meter+"/archive", "")
	require.Equal(t, 2, c.Customers)
	require.Empty(t, c.Changes, "what it has counted is charged")
	require.Nil(t, b.sent(t, 200, "GET", meter, "").ArchivedAt)
	ok(b, "POST", meter+"/archive", withToken(t, "", c.Token))
	ok(b, "POST", meter+"/archive", "") // it is already archived
	c = b.unconfirmed(t, "POST", meter+"/unarchive", "{}")
	require.Equal(t, []string{b.meterID(t, "calls")}, c.Uncounted, "what came meanwhile")
	ok(b, "POST", meter+"/unarchive", withToken(t, "{}", c.Token))
}

func TestTimeZoneChangeRequiresConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ahead.Store(int64(clock.Month(b.now(), 1).Sub(b.now()))) // in the middle of a month, which is the same in all time zones
	b.addUnpriced(t)
	patch := func(body string) answer { return b.send(t, "PATCH", "/v1/tenant", body) }
	require.Equal(t, 200, patch(`{"timezone":"Asia/Tokyo"}`).status, "nothing is charged")
	require.Equal(t, 200, b.confirmed(t, "PUT", setPrice, someTerms).status)
	require.Equal(t, 200, patch(`{"timezone":"Asia/Tokyo","name":"Acme"}`).status, "it is so")
	patch(`{"timezone":"Asia/Atlantis"}`).problem(t, 422, "invalid")
	c := b.unconfirmed(t, "PATCH", "/v1/tenant", `{"timezone":"Asia/Kathmandu"}`)
	require.Equal(t, 2, c.Customers)
	require.Len(t, c.Periods, 1)
	require.True(t, c.Periods[0].Start.Equal(monthIn(t, b.now(), "Asia/Tokyo").Start), "those that are left")
	require.True(t, c.Periods[0].End.Equal(monthIn(t, b.now(), "Asia/Kathmandu").End), "those that begin")
	require.Equal(t, 200, patch(withToken(t, `{"timezone":"Asia/Kathmandu"}`, c.Token)).status)
	require.Contains(t, b.send(t, "GET", "/v1/tenant", "").body, `"timezone":"Asia/Kathmandu"`)
}

// TestACatalogWriteReadsTheClockUnderItsLock checks writes that wait for another write until the time from which a
// version applies has passed. The version then changes a begun billing period. A price needs a confirmation, and a
// version cannot be withdrawn any more.
func TestACatalogWriteReadsTheClockUnderItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.pricing(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme"}`)
	next := billing.CalendarPeriod(b.now(), time.UTC).End
	other := dbtest.Conn(t)
	// passing sends a request, and lets the time next pass while the request waits for another write.
	passing := func(method, path, body string) answer {
		t.Helper()
		tx, err := other.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `select from catalog_revisions where tenant_id = $1 for update`, b.tenant.ID)
		require.NoError(t, err)
		var request sync.WaitGroup
		var answered answer
		request.Go(func() { answered = b.send(t, method, path, body) })
		dbtest.Eventually(t, func() error {
			var waits bool
			if err := tx.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid)))`).Scan(&waits); err != nil {
				return err
			}
			if !waits {
				return errors.New("the request does not wait")
			}
			return nil
		})
		b.ahead.Store(int64(next.Sub(b.now())) + int64(time.Hour))
		require.NoError(t, tx.Rollback(t.Context()))
		request.Wait()
		return answered
	}

	const path = "/v1/meters/calls/pricing"
	body := fmt.Sprintf(`{"overage_rate":2,"effective_from":%q}`, next.Format(time.RFC3339))
	passing("PUT", path, body).problem(t, 409, "confirmation_required")

	b.ahead.Store(0)
	scheduled := b.pricing(t, "PUT", path, body).Versions
	passing("DELETE", fmt.Sprint(path, "/", scheduled[len(scheduled)-1].Version), "").problem(t, 409, "conflict")
}
