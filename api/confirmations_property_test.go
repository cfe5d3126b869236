package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/histories"
)

// write is a request that can change charges.
type write struct{ method, path, body string }

// drawCatalogWrite draws a change of a price, a plan, a meter or the time zone.
func drawCatalogWrite(t *rapid.T) write {
	meter := "/v1/meters/" + rapid.SampledFrom([]string{"calls", "images"}).Draw(t, "meter")
	price := func(path string) write {
		terms := rapid.SampledFrom([]string{`"base_price":0`, `"base_price":9`, `"overage_rate":2`, `"base_price":9,"included_units":3,"overage_rate":2`}).Draw(t, "terms")
		from := rapid.SampledFrom([]string{``, `,"effective_from":"2020-01-01T00:00:00Z"`, `,"effective_from":"2100-01-01T00:00:00Z"`}).Draw(t, "from")
		return write{"PUT", path, "{" + terms + from + "}"}
	}
	switch rapid.SampledFrom([]string{"price", "plan's price", "own price", "end of own price", "plan", "aggregation", "selection", "definition", "archive", "unarchive", "zone"}).Draw(t, "write") {
	case "price":
		return price(meter + "/pricing")
	case "plan's price":
		return price("/v1/plans/pro/pricing/" + strings.TrimPrefix(meter, "/v1/meters/"))
	case "own price":
		return price(strings.Replace(meter, "/v1/meters/", "/v1/customers/acme/pricing/", 1))
	case "end of own price":
		from := rapid.SampledFrom([]string{`{}`, `{"effective_from":"2020-01-01T00:00:00Z"}`, `{"effective_from":"2100-01-01T00:00:00Z"}`}).Draw(t, "from")
		return write{"POST", strings.Replace(meter, "/v1/meters/", "/v1/customers/acme/pricing/", 1) + "/end", from}
	case "plan":
		return write{"PUT", "/v1/customers/acme/plan", `{"plan":` + rapid.SampledFrom([]string{`"pro"`, `null`}).Draw(t, "plan") + `,"effective_from":"2020-01-01T00:00:00Z"}`}
	case "aggregation":
		return write{"PATCH", meter, fmt.Sprintf(`{"aggregation":%q}`, rapid.SampledFrom([]string{"sum", "count"}).Draw(t, "aggregation"))}
	case "selection":
		return write{"PATCH", meter, rapid.SampledFrom([]string{`{"value_property":"n"}`, `{"value_property":"","filters":[]}`, `{"filters":[{"property":"n","operator":"exists"}]}`}).Draw(t, "selection")}
	case "definition":
		return write{"PATCH", meter, `{"group_by":["model"],"usage_scale":2,"name":"other"}`}
	case "archive":
		return write{"POST", meter + "/archive", ""}
	case "unarchive":
		return write{"POST", meter + "/unarchive", ""}
	}
	return write{"PATCH", "/v1/tenant", fmt.Sprintf(`{"timezone":%q}`, rapid.SampledFrom([]string{"UTC", "Asia/Kathmandu"}).Draw(t, "zone"))}
}

// TestPropertyAWriteThatIsNotConfirmedChangesNoCharge checks that a write without a confirmation changes no
// charge, including charges of later usage. Two tenants have the same history. Only the first makes the last
// writes, and both must have the same charges. Two of the last writes are the same in every history: one needs a
// confirmation, and one needs none.
func TestPropertyAWriteThatIsNotConfirmedChangesNoCharge(t *testing.T) {
	t.Parallel()
	shared := setup(t)
	histories.Check(t, func(rt *rapid.T) {
		twins := []*bundle{shared.of(t, dbtest.Tenant(t, shared.store)), shared.of(t, dbtest.Tenant(t, shared.store))}
		both := func(act func(b *bundle)) {
			for _, b := range twins {
				act(b)
			}
		}
		use := func(label string) {
			var events []string
			for range rapid.IntRange(1, 6).Draw(rt, label) {
				events = append(events, fmt.Sprintf(`{"customer_id":%q,"event_type":%q,"value":%d,"properties":%s}`, rapid.SampledFrom([]string{"acme", "contoso"}).Draw(rt, "customer"),
					rapid.SampledFrom([]string{"calls", "images"}).Draw(rt, "type"), rapid.IntRange(0, 9).Draw(rt, "value"),
					rapid.SampledFrom([]string{`{}`, `{"n":5}`, `{"n":"7"}`}).Draw(rt, "properties")))
			}
			both(func(b *bundle) { b.ingest(t, "/v1/events/batch", `{"events":[`+strings.Join(events, ",")+`]}`) })
		}
		both(func(b *bundle) {
			for _, slug := range []string{"calls", "images"} {
				require.Equal(rt, 201, b.send(t, "POST", "/v1/meters", `{"slug":"`+slug+`","event_type":"`+slug+`"}`).status)
			}
			for _, name := range []string{"acme", "contoso"} {
				require.Equal(rt, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"`+name+`"}`).status)
			}
			require.Equal(rt, 201, b.send(t, "POST", "/v1/meters", `{"slug":"videos","event_type":"videos"}`).status)
			b.ingest(t, "/v1/events", `{"customer_id":"acme","event_type":"videos","value":3}`)
			require.Equal(rt, 201, b.send(t, "POST", "/v1/plans", `{"slug":"pro"}`).status)
		})
		if rapid.IntRange(0, 3).Draw(rt, "used before") > 0 {
			use("events before")
		}
		for _, w := range rapid.SliceOfN(rapid.Custom(drawCatalogWrite), 0, 6).Draw(rt, "history") {
			both(func(b *bundle) {
				b.confirmed(t, w.method, w.path, w.body)
				b.countPast(t, rt)
			})
		}
		first := twins[0]
		require.Equal(rt, 200, first.send(t, "PUT", "/v1/meters/videos/pricing", `{"overage_rate":2,"effective_from":"2100-01-01T00:00:00Z"}`).status)
		first.send(t, "PUT", "/v1/meters/videos/pricing", `{"overage_rate":2,"effective_from":"2020-01-01T00:00:00Z"}`).problem(t, 409, "confirmation_required")
		w := rapid.Custom(drawCatalogWrite).Draw(rt, "last write")
		first.send(t, w.method, w.path, w.body)
		first.countPast(t, rt)
		use("events after")
		require.Equal(rt, twins[1].charges(t), first.charges(t))
	})
}

// countPast runs the unfinished backfills of the tenant's meters in place of their workflows.
func (b *bundle) countPast(t testing.TB, rt require.TestingT) {
	versions, err := b.store.Backfills.Unfinished(t.Context())
	require.NoError(rt, err)
	for _, v := range versions {
		if v.Tenant != b.tenant.ID {
			continue
		}
		days, err := b.store.Backfills.Days(t.Context(), v.Tenant, v.Version)
		require.NoError(rt, err)
		for _, day := range days {
			_, err := b.store.Backfills.CountDay(t.Context(), v.Tenant, v.Version, day)
			require.NoError(rt, err)
		}
		require.NoError(rt, b.store.Backfills.Complete(t.Context(), v.Tenant, v.Version))
	}
	for len(b.temporal.started) > 0 {
		<-b.temporal.started
	}
}

// charges returns the customers' charges so far, except charges of 0.
func (b *bundle) charges(t testing.TB) (all []string) {
	for _, customer := range []string{"acme", "contoso"} {
		var items []client.PreviewItem
		a := b.send(t, "GET", "/v1/billing/preview?customer="+customer, "")
		require.NoError(t, json.Unmarshal([]byte(a.body), &items), a.body)
		for _, i := range items {
			if i.Amount != "0" {
				all = append(all, fmt.Sprint(customer, " ", i.MeterSlug, " ", i.Amount, " ", i.Currency))
			}
		}
	}
	slices.Sort(all)
	return all
}
