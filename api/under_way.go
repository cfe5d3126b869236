package api

import (
	"context"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// maxRequests is how many of tenants' requests are under way at once, some ten
// kilobytes each. One tenant alone has half of them.
const maxRequests = 512

// Of pages with so many items, which are in memory until the client has taken
// them, few are under way at once.
const (
	largePage     = 200
	maxLargePages = 6
)

// maxHeavy is how many heavy operations are under way at once. One tenant alone has one of
// them: beside two, each on a connection, the database and this process answer others.
const maxHeavy = 2

// heavy marks an operation that reads all customers of the tenant. It waits for its turn.
func heavy(op huma.Operation) huma.Operation {
	op.Metadata["heavy"] = true
	op.Extensions["x-heavy"] = true
	return op
}

var errHeavy = metering.Errorf(metering.CodeOverloaded, "other requests that read all customers are under way; try again")

var errUnderWay = metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant are under way; try again")

// begin lets a tenant's request begin where its share has room for it.
func (s *server) begin(ctx huma.Context) error {
	x, tenant := exchangeOf(ctx.Context()), principalOf(ctx.Context()).Tenant.ID
	if !s.requests.Take(tenant, 1) {
		return errUnderWay
	}
	x.atEnd(func() { s.requests.Give(tenant, 1) })
	if ctx.Operation().Metadata["heavy"] == true {
		if err := s.waitFor(ctx, s.heavy, heavyWait, errHeavy); err != nil {
			return err
		}
	}
	if size, err := strconv.Atoi(ctx.Query("page_size")); err == nil && size > largePage && x.request.URL.Path != exportPath {
		return s.waitFor(ctx, s.largePages, largePageWait, errUnderWay)
	}
	return nil
}

// waitFor waits for the tenant's turn, which lasts until the request is answered, or fails
// with busy.
func (s *server) waitFor(ctx huma.Context, shares *db.Shares[metering.TenantID], most time.Duration, busy *metering.Error) error {
	x, tenant := exchangeOf(ctx.Context()), principalOf(ctx.Context()).Tenant.ID
	waiting, cancel := context.WithTimeout(ctx.Context(), most)
	defer cancel()
	if err := shares.Wait(waiting, tenant); err != nil {
		return busy.Because(err)
	}
	x.atEnd(func() { shares.Give(tenant, 1) })
	return nil
}
