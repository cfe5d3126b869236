package main_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/reference"
)

// definitions lists the definitions that a meter has in turn. Each one counts a different figure of modelCalls.
// Usage that mixes two definitions therefore differs from the usage by every definition.
var definitions = []reference.Definition{
	{Aggregation: "sum", Filters: []reference.Filter{}, GroupBy: []string{}},
	{Aggregation: "sum", ValueProperty: "usage.in", Filters: []reference.Filter{}, GroupBy: []string{"model"}},
	{Aggregation: "sum", ValueProperty: "usage.in", Filters: []reference.Filter{reference.Where("model", "in", `"large"`, `"small"`)}, GroupBy: []string{"user.region"}},
	{Aggregation: "sum", ValueProperty: "usage.out", Filters: []reference.Filter{reference.Where("usage.in", "gt", `10`)}, GroupBy: []string{"model", "user.region"}},
	{Aggregation: "count", ValueProperty: "usage.out", Filters: []reference.Filter{reference.Where("user.region", "ne", `"us"`)}, GroupBy: []string{"usage.cached"}},
	{Aggregation: "sum", ValueProperty: "cost", Filters: []reference.Filter{reference.Where("usage.cached", "not_exists")}, GroupBy: []string{"user.region", "model"}},
}

// lastDefinitionInSQL is the last element of definitions.
var lastDefinitionInSQL = countedInSQL{
	value: `pg_temp.usable(properties -> 'cost')`, filter: `coalesce(properties #> '{usage,cached}', 'null') = 'null'`,
	group: `jsonb_build_object('user.region', properties #> '{user,region}', 'model', properties -> 'model')`,
}

// modelCalls are the events of each batch.
var modelCalls = []struct{ customer, value, properties string }{
	{"acme", "1009", `{"model":"large","usage":{"in":11,"out":"7.5","cached":true},"user":{"region":"eu"},"cost":0.30000000000000004}`},
	{"acme", "10007", `{"model":"small","usage":{"in":101,"out":13},"user":{"region":"us"},"cost":"1.7"}`},
	{"beta", "100003", `{"model":"local","usage":{"in":1009,"out":17},"user":{"region":"eu"},"cost":23}`},
	{"beta", "1000003", `{"model":"large","usage":{"in":"10007","out":null},"user":{"region":"us"},"cost":29e-3}`},
}

// perBatch returns the usage of a batch: by group of the customer, or by customer if customer is empty.
func perBatch(d reference.Definition, customer string) map[string]*big.Rat {
	usage := make(map[string]*big.Rat)
	for _, c := range modelCalls {
		properties := reference.Decode(c.properties)
		value := d.Value(c.value, properties)
		if value == nil || customer != "" && c.customer != customer {
			continue
		}
		key := c.customer
		if customer != "" {
			key = d.Group(properties)
		}
		if usage[key] == nil {
			usage[key] = new(big.Rat)
		}
		if d.Aggregation == "count" {
			value = big.NewRat(1, 1)
		}
		usage[key].Add(usage[key], value)
	}
	return usage
}

// batchesOf returns the number of batches that add up to usage, or an error if no number of batches does.
func batchesOf(usage, batch map[string]*big.Rat) (n *big.Rat, err error) {
	for key, total := range usage {
		if batch[key] == nil {
			return nil, fmt.Errorf("no event has the group %q", key)
		}
		quotient := new(big.Rat).Quo(total, batch[key])
		if n != nil && n.Cmp(quotient) != 0 || !quotient.IsInt() {
			return nil, fmt.Errorf("usage %v is no multiple of %v", usage, batch)
		}
		n = quotient
	}
	if len(usage) > 0 && len(usage) < len(batch) {
		return nil, fmt.Errorf("usage %v lacks a group of %v", usage, batch)
	}
	return cmp.Or(n, new(big.Rat)), nil
}

// redefinition changes the definition of a meter while events arrive and usage is read.
type redefinition struct {
	*testing.T
	apis               []string
	key, span          string
	worker             *proc.Process
	begun, answered    atomic.Int64 // batches
	requested, applied atomic.Int64 // changes
	reads              [3]atomic.Int64
	over               atomic.Bool
}

// TestEachUsageReadUsesOneMeterDefinitionDuringChanges changes the path, filters and groups of a meter five times. Each
// read uses a single definition, which is never older than the last complete one. A read contains only whole batches,
// including all batches that were answered before the read.
func TestEachUsageReadUsesOneMeterDefinitionDuringChanges(t *testing.T) {
	t.Parallel()
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	now := time.Now().UTC()
	r := &redefinition{
		T: t, key: key, apis: []string{system.API(t).URL, system.API(t).URL},
		span: "&start=" + now.AddDate(0, 0, -1).Format(time.RFC3339) + "&end=" + now.AddDate(0, 0, 1).Format(time.RFC3339),
	}
	r.worker = system.Worker(t)
	status, body := call(t, "POST", r.apis[0]+"/v1/meters", key, `{"slug":"llm","event_type":"llm"}`)
	require.Equal(t, http.StatusCreated, status, body)
	for _, customer := range []string{"acme", "beta"} {
		status, body = call(t, "POST", r.apis[0]+"/v1/customers", key, fmt.Sprintf(`{"external_id":%q}`, customer))
		require.Equal(t, http.StatusCreated, status, body)
	}

	var group sync.WaitGroup
	for sender := range 3 {
		group.Go(func() { r.send(sender) })
	}
	for _, read := range []func(api string){r.readGroups, r.readTotal, r.readCustomers} {
		group.Go(func() {
			for n := 0; !r.over.Load() && !t.Failed(); n++ {
				read(r.apis[n%2])
			}
		})
	}
	r.awaitMore(20)
	for n := 1; n < len(definitions) && !t.Failed(); n++ {
		r.change(n)
		r.awaitMore(20)
	}
	t.Logf("%d batches, and reads of groups, totals and customers: %d, %d, %d", r.answered.Load(), r.reads[0].Load(), r.reads[1].Load(), r.reads[2].Load())
	r.over.Store(true)
	group.Wait()
	require.Equal(t, r.begun.Load(), r.answered.Load())
	r.readGroups(r.apis[0])
	r.readTotal(r.apis[1])
	r.readCustomers(r.apis[0])
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	requireRecounted(t, conn, "llm", lastDefinitionInSQL)
}

// send sends batches of modelCalls, each with new keys, until the test is over.
func (r *redefinition) send(sender int) {
	for n := 0; !r.over.Load(); n++ {
		events := make([]map[string]any, len(modelCalls))
		for i, c := range modelCalls {
			events[i] = map[string]any{
				"event_type": "llm", "customer_id": c.customer, "value": json.Number(c.value),
				"properties": json.RawMessage(c.properties), "idempotency_key": fmt.Sprintf("%d-%d-%d", sender, n, i),
			}
		}
		body, err := json.Marshal(map[string]any{"events": events})
		if err != nil {
			r.Error(err)
			return
		}
		r.begun.Add(1)
		status, answer := call(r.T, "POST", r.apis[n%2]+"/v1/events/batch", r.key, string(body))
		if status != http.StatusOK {
			r.Errorf("batch: %d %s", status, answer)
			return
		}
		r.answered.Add(1)
	}
}

// awaitMore waits for more batches, and for a further read of each kind.
func (r *redefinition) awaitMore(batches int64) {
	r.Helper()
	batches += r.answered.Load()
	var reads [len(r.reads)]int64
	for i := range reads {
		reads[i] = r.reads[i].Load() + 1
	}
	dbtest.Eventually(r, func() error {
		if r.answered.Load() < batches && !r.Failed() {
			return errors.New("too few batches were answered")
		}
		for i := range reads {
			if r.reads[i].Load() < reads[i] && !r.Failed() {
				return fmt.Errorf("read %d was not answered", i)
			}
		}
		return nil
	})
}

// change applies a definition and waits until it is complete. Events arrive and usage is read before a worker
// counts the earlier events.
func (r *redefinition) change(n int) {
	r.Helper()
	body, err := json.Marshal(definitions[n])
	require.NoError(r, err)
	r.worker.Kill(r)
	r.requested.Store(int64(n))
	status, answer := call(r.T, "PATCH", r.apis[n%2]+"/v1/meters/llm", r.key, string(body))
	require.Equal(r, http.StatusOK, status, answer)
	r.awaitMore(20)
	r.worker.Start(r)
	dbtest.Eventually(r, func() error {
		var meter struct{ Status string }
		r.get(r.apis[(n+1)%2]+"/v1/meters/llm", &meter)
		if meter.Status != "complete" {
			return fmt.Errorf("definition %d is %q", n, meter.Status)
		}
		return nil
	})
	r.applied.Store(int64(n))
}

// get reads a URL of the API into answer. It reports whether the request succeeded.
func (r *redefinition) get(url string, answer any) bool {
	status, body := call(r.T, "GET", url, r.key, "")
	if status != http.StatusOK {
		r.Errorf("GET %s: %d %s", url, status, body)
		return false
	}
	if err := json.Unmarshal([]byte(body), answer); err != nil {
		r.Error(err)
		return false
	}
	return true
}

// usageBy returns usage by customer or group. The definition determines the names of the groups.
type usageBy func(reference.Definition) map[string]*big.Rat

// requireOne requires that the usage that read returns is by a single definition. batch returns the usage of a
// batch by a definition.
func (r *redefinition) requireOne(read func() usageBy, batch usageBy) {
	oldest, fewest := r.applied.Load(), r.answered.Load()
	usage := read()
	newest, most := r.requested.Load(), r.begun.Load()
	if usage == nil {
		return
	}
	var reasons []error
	for n := oldest; n <= newest; n++ {
		d := definitions[n]
		batches, err := batchesOf(usage(d), batch(d))
		if err == nil && batches.Cmp(big.NewRat(fewest, 1)) >= 0 && batches.Cmp(big.NewRat(most, 1)) <= 0 {
			return
		}
		reasons = append(reasons, cmp.Or(err, fmt.Errorf("definition %d has counted %v batches of %d to %d", n, batches, fewest, most)))
	}
	r.Errorf("usage is by none of the definitions %d to %d: %v", oldest, newest, errors.Join(reasons...))
}

// readGroups reads a customer's usage by group, and requires that it is by a single definition.
func (r *redefinition) readGroups(api string) {
	r.requireOne(func() usageBy {
		var answer struct {
			Total  json.Number
			Groups []struct {
				Key      json.RawMessage `json:"group_key"`
				Subtotal json.Number
			}
		}
		if !r.get(api+"/v1/usage?customer=acme&meter=llm&granularity=month"+r.span, &answer) {
			return nil
		}
		r.reads[0].Add(1)
		return func(d reference.Definition) map[string]*big.Rat {
			usage, sum := make(map[string]*big.Rat), new(big.Rat)
			for _, g := range answer.Groups {
				key := reference.Decode(string(g.Key))
				if len(key) != len(d.GroupBy) {
					return map[string]*big.Rat{fmt.Sprintf("group %s", g.Key): rational(g.Subtotal)}
				}
				usage[d.GroupOf(key)] = rational(g.Subtotal)
				sum.Add(sum, rational(g.Subtotal))
			}
			if sum.Cmp(rational(answer.Total)) != 0 {
				usage["total"] = rational(answer.Total)
			}
			return usage
		}
	}, func(d reference.Definition) map[string]*big.Rat { return perBatch(d, "acme") })
}

// readTotal reads a customer's total, and requires that it is by a single definition.
func (r *redefinition) readTotal(api string) {
	r.requireOne(func() usageBy {
		var answer struct{ Total json.Number }
		if !r.get(api+"/v1/usage/total?customer=beta&meter=llm"+r.span, &answer) {
			return nil
		}
		r.reads[1].Add(1)
		return func(reference.Definition) map[string]*big.Rat {
			return map[string]*big.Rat{"beta": rational(answer.Total)}
		}
	}, func(d reference.Definition) map[string]*big.Rat {
		return map[string]*big.Rat{"beta": perBatch(d, "")["beta"]}
	})
}

// readCustomers reads the usage of all customers, and requires that it is by a single definition.
func (r *redefinition) readCustomers(api string) {
	r.requireOne(func() usageBy {
		var answer struct {
			Data []struct {
				Customer string
				Value    json.Number
			}
		}
		if !r.get(api+"/v1/usage/breakdown?meter=llm&by=customer"+r.span, &answer) {
			return nil
		}
		r.reads[2].Add(1)
		return func(reference.Definition) map[string]*big.Rat {
			usage := make(map[string]*big.Rat)
			for _, row := range answer.Data {
				usage[row.Customer] = rational(row.Value)
			}
			return usage
		}
	}, func(d reference.Definition) map[string]*big.Rat { return perBatch(d, "") })
}

func rational(n json.Number) *big.Rat {
	r, _ := new(big.Rat).SetString(n.String())
	return r
}
