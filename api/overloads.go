package api

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/metering"
)

// Values of the label bound of odometer_requests_overloaded_total.
const (
	boundHeavy     = "heavy"
	boundSeries    = "series"
	boundRequests  = "requests"
	boundResponses = "responses"
	boundLarge     = "large_bodies"
	boundSignIns   = "sign_ins"
	boundDatabase  = "database" // connections of a tenant, locks, the time of statements, and changes that other requests saved first

	boundBodies = "" // refusedBodies counts and logs them
)

// boundOf maps the message of an error to the bound that was reached. All other errors belong to boundDatabase.
var boundOf = map[string]string{
	errHeavy.Message: boundHeavy, errSeries.Message: boundSeries, errUnderWay.Message: boundRequests,
	errUnread.Message: boundResponses, errBusy.Message: boundLarge, errHashing.Message: boundSignIns,
	errFull.Message: boundBodies, errEnded.Message: boundBodies,
}

// overloads counts the requests that were refused with CodeOverloaded, and logs them at most once a minute for each
// bound. It excludes requests with a refused body.
type overloads struct {
	total *prometheus.CounterVec
	log   *slog.Logger
	logs  sparseLogs[string] // by bound
}

// count counts a request of the tenant if err has CodeOverloaded.
func (o *overloads) count(tenant metering.TenantID, err error, now time.Time) {
	var overloaded *metering.Error
	if !errors.As(err, &overloaded) || overloaded.Code != metering.CodeOverloaded {
		return
	}
	bound, named := boundOf[overloaded.Message]
	if !named {
		bound = boundDatabase
	}
	if bound == boundBodies {
		return
	}
	o.total.WithLabelValues(bound).Inc()
	if n := o.logs.add(bound, now); n > 0 {
		o.log.Warn("the API refuses requests", "bound", bound, "requests", n, "last_tenant", tenant.String(), "last_error", err.Error())
	}
}
