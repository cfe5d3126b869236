package api

import (
	"github.com/odometer-metering/odometer/metering"
)

// maxRequests is how many of tenants' requests are under way at once, some ten
// kilobytes each. One tenant alone has half of them.
const maxRequests = 512

// begin lets a request of the tenant's begin where its share has room for it.
func (s *server) begin(tenant metering.TenantID) (end func(), err error) {
	if !s.requests.Take(tenant, 1) {
		return nil, metering.Errorf(metering.CodeOverloaded, "too many requests of the tenant are under way; try again")
	}
	return func() { s.requests.Give(tenant, 1) }, nil
}
