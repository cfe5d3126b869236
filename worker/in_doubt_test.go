package worker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// statement returns the sequence and the usage of the last delivery.
func (s *system) statement() (sequence int64, usage string) {
	s.Helper()
	deliveries := s.received()
	require.NotEmpty(s, deliveries)
	var message struct {
		Data struct {
			Sequence int64
			Meters   []struct{ Usage json.Number }
		}
	}
	require.NoError(s, json.Unmarshal([]byte(deliveries[len(deliveries)-1].Body), &message))
	return message.Data.Sequence, message.Data.Meters[0].Usage.String()
}

// leftBehind returns a system with a report of unknown outcome at a webhook that was replaced since, and the sync
// that waited for that report.
func leftBehind(t *testing.T) (s *system, waited metering.Sync) {
	t.Helper()
	s = newSystem(t)
	stop := s.work()
	s.use("5")
	s.behave(`{"drop_answer":true,"times":1000}`)
	id := s.request()
	s.awaitDeliveries(1)
	stop()
	s.useProvider(s.farEnd.url + "/another")
	_, err := s.connect().Exec(t.Context(), `update billing_reports set lease_until = null where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	s.behave(`{"times":0}`)
	s.forget()
	s.use("2")
	s.work()
	return s, s.await(id)
}

// inDoubt returns the only report in the state in_doubt.
func (s *system) inDoubt() (report uuid.UUID) {
	s.Helper()
	require.NoError(s, s.connect().QueryRow(s.Context(), `
		select id from billing_reports where tenant_id = $1 and state = 'in_doubt'`, s.tenant).Scan(&report))
	return report
}

func TestReportInDoubtAtPreviousConnectionCountsAsBilled(t *testing.T) {
	t.Parallel()
	s, waited := leftBehind(t)
	require.Equal(t, metering.SyncSucceeded, waited.Status, "the present connection is not held up")
	sequence, usage := s.statement()
	require.EqualValues(t, 2, sequence)
	require.Equal(t, "2", usage, "of 7, 5 may have been billed")
	states := map[int64]string{}
	for _, l := range waited.Lines {
		states[l.Number] = l.State
	}
	require.Equal(t, "accepted", states[2])
	closed, err := s.store.Ledger.ClosePeriods(t.Context(), s.tenant, []metering.CustomerID{s.customer.ID}, clock.Month(time.Now(), 2))
	require.NoError(t, err)
	require.Equal(t, 2, closed.Closed, "what is in doubt keeps no period open")
	require.NotEmpty(t, s.inDoubt(), "nor does the closing decide it")
}

func TestStatementFollowsOperatorsResolutionOfReportInDoubt(t *testing.T) {
	t.Parallel()
	for state, want := range map[billing.State]struct {
		usage      string
		deliveries int
	}{billing.Accepted: {"2", 1}, billing.Rejected: {"7", 2}} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			s, _ := leftBehind(t)
			require.NoError(t, s.store.Ledger.Resolve(t.Context(), s.tenant, ledger.Resolution{Report: s.inDoubt(), State: state, Actor: metering.Operator}, time.Now()))
			require.Equal(t, metering.SyncSucceeded, s.await(s.request()).Status)
			_, usage := s.statement()
			require.Equal(t, want.usage, usage)
			s.requireDeliveries(workflows.SyncCustomerID(s.tenant, s.customer.ID), want.deliveries)
			closed, err := s.store.Ledger.ClosePeriods(t.Context(), s.tenant, []metering.CustomerID{s.customer.ID}, clock.Month(time.Now(), 2))
			require.NoError(t, err)
			require.Positive(t, closed.Closed)
		})
	}
}

func TestReceiverSavedAgainKeepsItsConnection(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	connection := func() metering.ConnectionID {
		active, err := s.store.Providers.Active(t.Context(), s.tenant)
		require.NoError(t, err)
		return active.ID
	}
	first := connection()
	s.useProvider(s.farEnd.url + "/canary-path")
	require.Equal(t, first, connection())
	s.useProvider(s.farEnd.url + "/another")
	require.NotEqual(t, first, connection())
	s.useProvider(s.farEnd.url + "/canary-path")
	require.Equal(t, first, connection(), "and has it again when it comes back")
	require.Regexp(t, `^con_\d+$`, first.String())
}
