package api

import (
	"context"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

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

var errUnderWay = metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant are under way; try again")

// begin lets a tenant's request begin where its share has room for it.
func (s *server) begin(ctx huma.Context) error {
	x, tenant := exchangeOf(ctx.Context()), principalOf(ctx.Context()).Tenant.ID
	if !s.requests.Take(tenant, 1) {
		return errUnderWay
	}
	x.atEnd(func() { s.requests.Give(tenant, 1) })
	if size, err := strconv.Atoi(ctx.Query("page_size")); err != nil || size <= largePage || x.request.URL.Path == exportPath {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx.Context(), largePageWait)
	defer cancel()
	if err := s.largePages.Wait(waiting, tenant); err != nil {
		return errUnderWay
	}
	x.atEnd(func() { s.largePages.Give(tenant, 1) })
	return nil
}
