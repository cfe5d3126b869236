package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// inDoubt creates a sync of acme with a report of unknown outcome.
func (b *bundle) inDoubt(t *testing.T) (sync metering.Sync, report uuid.UUID) {
	t.Helper()
	b.meter(t, "calls", "call")
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1.5")
	planned := b.planned(t)
	report = planned.Leased.ReportID
	require.NoError(t, b.store.Ledger.Complete(t.Context(), b.tenant.ID, report, billing.InDoubt, "nobody knows", b.now()))
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	sync, err = b.store.Syncs.Request(t.Context(), b.tenant.ID, metering.Operator, acme.ID, metering.Manual, b.now())
	require.NoError(t, err)
	begun, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, acme.ID, b.now())
	require.NoError(t, err)
	_, err = b.store.Syncs.Finish(t.Context(), b.tenant.ID, acme.ID, begun.PassID, ledger.Answer{Reports: []uuid.UUID{report}}, b.now())
	require.NoError(t, err)
	return sync, report
}

// planned saves a provider and plans a report of acme's usage, leased to the caller.
func (b *bundle) planned(t *testing.T) ledger.Planned {
	t.Helper()
	_, err := b.store.Providers.Save(t.Context(), b.tenant.ID, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Address: "https://billing.example.com/", SealedSecret: []byte("sealed"), ValidatedAt: b.now(),
	})
	require.NoError(t, err)
	return b.plan(t)
}

// plan plans acme's reports in a pass of its own.
func (b *bundle) plan(t *testing.T) ledger.Planned {
	t.Helper()
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	numbers, err := b.store.Ledger.LastNumbers(t.Context(), b.tenant.ID, []metering.CustomerID{acme.ID})
	require.NoError(t, err)
	pass := ledger.Pass{After: numbers[acme.ID], Lease: time.Minute}
	planned, err := b.store.Ledger.Plan(t.Context(), b.tenant.ID, acme.ID, pass, dbtest.Frame, b.now())
	require.NoError(t, err)
	return planned
}

// line returns the only line of a sync.
func (b *bundle) line(t *testing.T, sync metering.Sync) client.SyncLine {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/syncs/"+sync.ID.String(), "")
	require.Equal(t, 200, a.status, a.body)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(a.body), &run))
	require.Len(t, run.Lines, 1)
	return run.Lines[0]
}

// resolvePath returns the path that resolves a report.
func resolvePath(report uuid.UUID) string {
	return "/v1/billing/reports/" + report.String() + "/resolve"
}

// resolveBody returns a request body that resolves a report with this state.
func resolveBody(state string) string {
	return `{"state":"` + state + `","reason":"as its log says"}`
}

func TestAnOperatorResolvesAReportInDoubt(t *testing.T) {
	t.Parallel()
	for state, again := range map[string]bool{"accepted": false, "rejected": true} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			sync, report := b.inDoubt(t)
			require.EqualValues(t, "in_doubt", b.line(t, sync).State)
			require.Equal(t, report.String(), b.line(t, sync).ReportId)

			a := b.send(t, "POST", resolvePath(report), resolveBody(state))
			require.Equal(t, 200, a.status, a.body)
			require.Empty(t, a.body)
			require.EqualValues(t, state, b.line(t, sync).State)
			require.Equal(t, "resolved by an operator", b.line(t, sync).Response)
			log := b.send(t, "GET", "/v1/audit-log", "").body
			require.Contains(t, log, `"action":"report.resolve","resource":"`+report.String()+" "+state+`","reason":"as its log says"`)

			planned := b.plan(t)
			if !again {
				require.Empty(t, planned.Send, "it is known there")
				return
			}
			require.Len(t, planned.Send, 1)
			require.NotEqual(t, report, planned.Send[0].ID)
			require.Equal(t, b.line(t, sync).Number+1, planned.Send[0].Number)
		})
	}
}

func TestOnlyAReportInDoubtIsResolved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, report := b.inDoubt(t)
	for _, state := range []string{"accepted", "rejected"} {
		b.send(t, "POST", resolvePath(uuid.New()), resolveBody(state)).problem(t, 404, "not_found")
		b.send(t, "POST", "/v1/billing/reports/7/resolve", resolveBody(state)).problem(t, 404, "not_found")
		setup(t).send(t, "POST", resolvePath(report), resolveBody(state)).problem(t, 404, "not_found")
	}
	for _, state := range []string{"planned", "sending", "in_doubt", "counted", "billed", "Accepted", ""} {
		require.Equal(t, "body.state", b.send(t, "POST", resolvePath(report), resolveBody(state)).problem(t, 422, "invalid").Errors[0].Location, state)
	}
	require.NotEmpty(t, b.send(t, "POST", resolvePath(report), `{}`).problem(t, 422, "invalid").Errors)

	require.Equal(t, 200, b.send(t, "POST", resolvePath(report), resolveBody("accepted")).status)
	for _, state := range []string{"accepted", "rejected"} {
		p := b.send(t, "POST", resolvePath(report), resolveBody(state)).problem(t, 409, "conflict")
		require.Equal(t, "the report is accepted; only a report in state in_doubt can be resolved", p.Detail)
	}
}

func TestAReportThatIsBeingSentIsNotResolved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1")
	report := b.planned(t).Leased.ReportID
	p := b.send(t, "POST", resolvePath(report), resolveBody("rejected")).problem(t, 409, "conflict")
	require.Equal(t, "the report is sending; only a report in state in_doubt can be resolved", p.Detail)
}

func TestResolvingReportRequiresAdminScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sync, report := b.inDoubt(t)
	for _, scope := range scopes {
		if scope == metering.ScopeAdmin {
			continue
		}
		as := b.keyOf(t, b.tenant.ID, scope).headers("")
		b.send(t, "POST", resolvePath(report), resolveBody("rejected"), as...).problem(t, 403, "forbidden")
	}
	b.send(t, "POST", resolvePath(report), resolveBody("rejected"), "Authorization: ").problem(t, 401, "unauthorized")
	require.EqualValues(t, "in_doubt", b.line(t, sync).State)
	require.NotContains(t, b.send(t, "GET", "/v1/audit-log", "").body, "report.resolve")
}
