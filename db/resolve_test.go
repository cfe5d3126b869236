package db_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func (b *biller) resolve(report uuid.UUID, state billing.State) error {
	return b.store.Ledger.Resolve(b.Context(), b.tenant, ledger.Resolution{Report: report, State: state, Actor: "key_1", Reason: "as its log says"}, b.now)
}

// requireResolved requires that an operator has resolved the report with the outcome, and that it cannot be resolved
// again.
func (b *biller) requireResolved(report uuid.UUID, outcome billing.State) {
	b.Helper()
	state, response := b.state(report)
	require.Equal(b, outcome, state)
	require.Equal(b, "resolved by an operator", response)
	b.requireConflict(b.resolve(report, billing.Accepted), "the report is "+string(outcome))
	b.requireConflict(b.resolve(report, billing.Rejected), "the report is "+string(outcome))
	require.Equal(b, []string{report.String() + " " + string(outcome)}, b.audited("report.resolve"))
}

// receiver is a kind of provider that receives reports. Its function use makes an account the tenant's provider.
type receiver struct {
	name string
	use  func(b *biller, account string, month metering.Range)
	rest func(b *biller) string // sends the next reports and returns the total usage reported to this receiver; "" if there are none
}

var receivers = []receiver{
	{"webhook", func(b *biller, account string, _ metering.Range) {
		b.useProvider("https://" + account + ".example.com/")
	}, func(b *biller) string {
		planned := b.plan(anew)
		if len(planned.Send) == 0 {
			return ""
		}
		return b.acceptOf(planned).Data.Meters[0].Usage.String()
	}},
	{"quantities", func(b *biller, account string, month metering.Range) {
		b.useStripe(account)
		b.link("sub_"+account, month, asDelta)
	}, func(b *biller) string {
		if len(b.plan(anew).Send) == 0 {
			return ""
		}
		b.reportAll()
		var all metering.Decimal
		b.scan(`
			select sum(r.quantity)
			from billing_reports r
			join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
			join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
			where r.tenant_id = $1
			  and d.connection_id = $2
			  and r.state = 'counted'`, []any{b.tenant, b.connection}, &all)
		return all.String()
	}},
}

func TestOperatorResolvesReportInDoubtAtPreviousConnection(t *testing.T) {
	t.Parallel()
	rests := map[billing.State]string{billing.Accepted: "", billing.Rejected: "13"}
	for _, from := range receivers {
		for _, to := range receivers {
			for outcome, rest := range rests {
				t.Run(from.name+" to "+to.name+" "+string(outcome), func(t *testing.T) {
					t.Parallel()
					b, month := newOldBiller(t)
					from.use(b, "one", month)
					s := b.moveWhileSending("10", func() { to.use(b, "two", month) })
					b.requireConflict(b.resolve(s, outcome), "the report is sending")
					b.now = b.now.Add(lease)
					b.use("3")
					require.Equal(t, "3", to.rest(b), "the 10 count as billed there")
					require.Empty(t, to.rest(b))
					require.Empty(t, b.outOfSync())

					require.NoError(t, b.resolve(s, outcome))
					b.requireResolved(s, outcome)
					require.Len(t, b.outOfSync(), 1, "the outcome may change the quantity to bill")
					require.Equal(t, rest, to.rest(b))
					require.Empty(t, b.outOfSync())
				})
			}
		}
	}
}

func TestOperatorResolvesReportInDoubtAtActiveConnection(t *testing.T) {
	t.Parallel()
	for outcome, rest := range map[billing.State]string{billing.Accepted: "0", billing.Rejected: "10"} {
		b, month := newOldBiller(t)
		b.useStripe("acct_1")
		b.link("sub_1", month, asDelta)
		b.use("10")
		s := b.next(anew).ID
		b.requireConflict(b.resolve(s, outcome), "the report is planned")
		b.lease(s)
		b.complete(s, billing.InDoubt)
		require.NotEmpty(t, b.outOfSync(), "a sync may learn the outcome from the provider")
		require.NoError(t, b.resolve(s, outcome))
		b.requireResolved(s, outcome)
		require.Equal(t, outcome == billing.Rejected, len(b.plan(anew).Send) == 1)
		require.Equal(t, rest, b.reportAll().String())
	}
}

func TestTenantCannotResolveReportOfAnotherTenant(t *testing.T) {
	t.Parallel()
	mine, theirs := newBiller(t), newBiller(t)
	mine.use("1")
	s := mine.next(0).ID
	mine.lease(s)
	mine.complete(s, billing.InDoubt)
	for _, unknown := range []uuid.UUID{s, uuid.New()} {
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(theirs.resolve(unknown, billing.Rejected)))
	}
	require.Empty(t, theirs.audited("report.resolve"))
	state, _ := mine.state(s)
	require.Equal(t, billing.InDoubt, state)
	require.NoError(t, mine.resolve(s, billing.Accepted))
	mine.requireResolved(s, billing.Accepted)
}
