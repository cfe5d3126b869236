package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
)

// TestDrillEachLineOfTwoMonthsIsBilledOnceOrResolved also checks that the drill detects an invoice that was voided
// without an event.
func TestDrillEachLineOfTwoMonthsIsBilledOnceOrResolved(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	d := newDrill(t, io.MultiWriter(&printed, t.Output()))
	require.NoError(t, d.run())
	text := printed.String()
	require.Contains(t, text, "everything is billed once, waived, or decided on by somebody: OK")
	rows := d.rows()
	require.Len(t, rows, 56)
	for _, r := range rows {
		require.Contains(t, text[strings.Index(text, "6. Both months"):], r.customer.kind)
	}

	d.stripe(d.main, http.MethodPost, "/v1/invoices/"+d.lastInvoice(late)+"/void", nil)
	err := d.prove()
	require.ErrorContains(t, err, "usage after the closing: the invoices differ from our charges by -1.38", "the event about the void invoice is not delivered")
}

func TestRowIsResolvedUnlessOpenOrDisputed(t *testing.T) {
	t.Parallel()
	for state, c := range map[client.ReconciliationState]struct {
		by   string
		want bool
	}{
		client.ReconciliationStateAgreed: {"", true}, client.ReconciliationStateCarried: {"", true}, client.ReconciliationStateWaived: {"", true},
		client.ReconciliationStateWrittenOff: {"member_1", true}, client.ReconciliationStateDisputed: {"", false}, client.ReconciliationStateOpen: {"", false},
	} {
		r := row{Reconciliation: client.Reconciliation{State: state, DecidedBy: c.by}}
		require.Equal(t, c.want, r.isResolved(), state)
	}
}
