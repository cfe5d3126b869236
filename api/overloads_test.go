package api

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestOverloadsAreLoggedOnceAMinutePerBound checks that each bound has one log line a minute, with the number of
// refused requests, and that refused bodies and other errors are excluded.
func TestOverloadsAreLoggedOnceAMinutePerBound(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := &overloads{total: newMetrics(nil).overloaded, log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))}
	busy := metering.Errorf(metering.CodeOverloaded, "the database is busy; try again")
	now := time.Unix(0, 0)
	for range 3 {
		for _, err := range []error{errHeavy.Because(errors.New("deadline")), errors.Join(busy), errFull, errEnded, errUnauthorized, errors.New("other"), nil} {
			o.count(7, err, now)
		}
		now = now.Add(sparseLogEvery / 2)
	}
	require.Equal(t, `level=WARN msg="the API refuses requests" bound=heavy requests=1 last_tenant=ten_7 last_error="`+errHeavy.Message+`: deadline"
level=WARN msg="the API refuses requests" bound=database requests=1 last_tenant=ten_7 last_error="the database is busy; try again"
level=WARN msg="the API refuses requests" bound=heavy requests=2 last_tenant=ten_7 last_error="`+errHeavy.Message+`: deadline"
level=WARN msg="the API refuses requests" bound=database requests=2 last_tenant=ten_7 last_error="the database is busy; try again"
`, log.String())
	registry := prometheus.NewRegistry()
	registry.MustRegister(o.total)
	found, err := registry.Gather()
	require.NoError(t, err)
	counts := make(map[string]float64)
	for _, m := range found[0].GetMetric() {
		counts[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	require.Equal(t, map[string]float64{boundHeavy: 3, boundDatabase: 3}, counts)
}

// TestEachOverloadErrorHasABound checks that each error of the API with CodeOverloaded that refuses a request has a
// bound.
func TestEachOverloadErrorHasABound(t *testing.T) {
	t.Parallel()
	for _, err := range []*metering.Error{errHeavy, errSeries, errUnderWay, errUnread, errBusy, errHashing, errFull, errEnded} {
		require.Equal(t, metering.CodeOverloaded, err.Code)
		require.Contains(t, boundOf, err.Message)
	}
	require.Len(t, boundOf, 8, "the messages differ")
}
