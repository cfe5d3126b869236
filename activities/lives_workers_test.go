package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// pass is one pass of a worker. It sends each report in a goroutine, which waits before the call and before the result
// is recorded.
type pass struct {
	*life
	store    *db.DB // the life's, or the pass's own if the worker stops
	begun    activities.BeginSyncResult
	calling  chan struct{}   // closed when the report is leased, before the call
	fate     chan lives.Fate // fate of the call
	called   chan struct{}   // closed after the call
	settling chan struct{}   // closed when the result may be recorded
	sent     chan error      // receives the error of SendReport at its end; nil: no report is being sent

	hasCalled bool
	sending   uuid.UUID // the report to send, if it is leased, sent and recorded at one instant
}

// pass returns the pass with the number, and begins it if it is new. A worker that stops later has its own connection
// to the database.
func (l *life) pass(number int) *pass {
	p, known := l.passes[number]
	if known {
		return p
	}
	p = &pass{life: l, store: l.store}
	if l.mortal[number] {
		store, err := dbtest.Connect(l.Context(), dbtest.URL(l))
		require.NoError(l, err)
		p.store = store
	}
	l.passes[number] = p
	return p
}

// step replays one step of the pass.
func (p *pass) step(a lives.Action) {
	p.Helper()
	do := p.activities(p.store, nil)
	switch a.Do {
	case lives.Begin:
		p.run(do, do.BeginSync, p.customerInput(), &p.begun)
	case lives.ReadSide:
		p.run(do, do.ReadProvider, activities.ReadProviderInput{CustomerInput: p.customerInput()}, nil)
	case lives.Plan:
		p.plan(do, a)
	case lives.Dies:
		p.die()
	case lives.Lease, lives.Call, lives.Settle:
		p.send(a)
	default:
		p.Fatalf("nobody knows how to do %q", a.Do)
	}
}

// send replays a step of sending a report: the lease, the call, or the recording of the result.
func (p *pass) send(a lives.Action) {
	p.Helper()
	switch {
	case a.Do == lives.Lease && p.atOnce:
		p.leaseAtOnce(a)
	case a.Do == lives.Call && p.atOnce:
		p.callAtOnce(a)
	case a.Do == lives.Lease:
		p.lease(a)
	case a.Do == lives.Call:
		p.call(a.Fate)
	case !p.atOnce:
		p.settle()
	}
}

// plan plans reports, and compares them with the recorded plan.
func (p *pass) plan(do *activities.Activities, a lives.Action) {
	p.Helper()
	in := activities.PlanReportsInput{CustomerInput: p.customerInput(), After: p.begun.After}
	for _, meter := range a.Excluded {
		excluded := -meter // the ID of no meter, because the life has not created the meter yet
		if int(meter) <= len(p.meters) {
			excluded = p.meters[meter-1].ID
		}
		in.Excluded = append(in.Excluded, excluded)
	}
	var planned passes.Plan
	p.run(do, do.PlanReports, in, &planned)
	var numbers []int64
	for _, r := range planned.Send {
		numbers = append(numbers, r.Number)
	}
	require.Equal(p, a.Sends, numbers, "at %s", p.now)
	require.Equal(p, a.ReadFirst, planned.ReadFirst, "at %s", p.now)
}

// lease starts to send a report, and waits until the worker has leased it and reached its call. It also returns if the
// report is not leased.
func (p *pass) lease(a lives.Action) {
	p.Helper()
	p.calling, p.fate, p.called, p.settling = make(chan struct{}), make(chan lives.Fate), make(chan struct{}), make(chan struct{})
	p.sent, p.hasCalled = make(chan error, 1), false
	do, in := p.activities(p.store, p), activities.SendReportInput{TenantID: p.tenant, ReportID: p.report(a.Report)}
	go func(sent chan<- error) {
		_, err := executing(do).ExecuteActivity(do.SendReport, in)
		sent <- err
	}(p.sent)
	select {
	case <-p.calling:
		require.False(p, a.Busy, "report %d was leased at %s", a.Report, p.now)
	case err := <-p.sent:
		require.True(p, a.Busy, "report %d was not leased at %s: %v", a.Report, p.now, err)
		p.sent = nil
	}
}

// die stops the worker at its current step: it writes nothing more to the database.
func (p *pass) die() {
	p.store.Close()
	p.leave()
}

// leave lets the goroutine that sends a report end. If the goroutine has not called the receiver
// yet, leave cancels the context of the call, so that the receiver gets no call.
func (p *pass) leave() {
	if p.sent == nil {
		return
	}
	if !p.hasCalled {
		p.call(lives.Late)
	}
	p.settle()
}

// end lets all goroutines end that still wait when the life is over.
func (l *life) end() {
	for _, p := range l.passes {
		p.leave()
	}
}

// call lets the goroutine call the receiver, and waits until the call has ended.
func (p *pass) call(fate lives.Fate) {
	p.fate <- fate
	<-p.called
	p.hasCalled = true
}

// settle lets the goroutine record the result of its call, and waits for its end.
func (p *pass) settle() {
	close(p.settling)
	<-p.sent
	p.sent = nil
}

// Deliver calls the receiver, and waits before and after the call. The waits follow the life's clock, so the call does
// not end with the real lease.
func (p *pass) Deliver(ctx context.Context, url string, secrets []string, id string, now time.Time, body []byte) (webhook.Answer, error) {
	ctx = context.WithoutCancel(ctx)
	close(p.calling)
	fate := <-p.fate
	defer func() { <-p.settling }()
	defer close(p.called)
	if fate == lives.Late {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	p.receiver.meets(id, fate)
	return caller().Deliver(ctx, url, secrets, id, now, body)
}

// caller returns a webhook client that may call receivers on this machine.
func caller() *webhook.Client { return webhook.New(providers.Guard{AllowLoopback: true}) }

const receiverSecret = "whsec_b2RvbWV0ZXIgaW4gYSBzaW11bGF0ZWQgbGlmZSE="

// receiver accepts statements at any path, and stores the number of the last statement for each connection
// and period.
type receiver struct {
	webhook *standardwebhooks.Webhook

	mu     sync.Mutex
	fates  map[string]lives.Fate // of the next call, by webhook-id
	latest map[receivedFor]int64
}

type receivedFor struct {
	connection int
	period     time.Time
}

// newReceiver returns a receiver without statements.
func newReceiver() *receiver {
	verifier, err := standardwebhooks.NewWebhook(receiverSecret)
	if err != nil {
		panic(err)
	}
	return &receiver{webhook: verifier, fates: make(map[string]lives.Fate), latest: make(map[receivedFor]int64)}
}

// meets sets the fate of the next call with the webhook-id.
func (r *receiver) meets(id string, fate lives.Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fates[id] = fate
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil || r.webhook.VerifyIgnoringTimestamp(body, req.Header) != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get(standardwebhooks.HeaderWebhookID)
	fate := r.fates[id]
	delete(r.fates, id)
	switch fate {
	case lives.ServerError:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case lives.Refused:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var message struct {
		Data struct {
			Period   webhook.StatementPeriod `json:"period"`
			Sequence int64                   `json:"sequence"`
		}
	}
	if err := json.Unmarshal(body, &message); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	of := receivedFor{connectionOf(req.URL.Path), message.Data.Period.Start}
	r.latest[of] = max(r.latest[of], message.Data.Sequence)
	if fate == lives.AnswerLost {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
}

// again delivers a sent report a second time.
func (l *life) again(report uuid.UUID) {
	var account string
	var body []byte
	require.NoError(l, l.pool.QueryRow(l.Context(), `
		select c.account || c.address, r.body
		from billing_reports r
		join billing_series s on s.tenant_id = r.tenant_id and s.id = r.series_id
		join billing_destinations d on d.tenant_id = s.tenant_id and d.id = s.destination_id
		join billing_connections c on c.tenant_id = d.tenant_id and c.id = d.connection_id
		where r.tenant_id = $1
		  and r.id = $2`, l.tenant, report).Scan(&account, &body))
	_, err := caller().Deliver(l.Context(), account, []string{receiverSecret}, report.String(), l.now, bytes.Clone(body))
	require.NoError(l, err)
}

// customerInput returns the input of activities about the customer.
func (l *life) customerInput() activities.CustomerInput {
	return activities.CustomerInput{TenantID: l.tenant, CustomerID: l.customer}
}

// report returns the ID of a report.
func (l *life) report(number int64) (id uuid.UUID) {
	l.Helper()
	err := l.pool.QueryRow(l.Context(), `
		select id
		from billing_reports
		where tenant_id = $1
		  and customer_id = $2
		  and number = $3`, l.tenant, l.customer, number).Scan(&id)
	require.NoError(l, err, "report %d at %s", number, l.now)
	return id
}
