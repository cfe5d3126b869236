package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// SendReportInput names the report to send.
type SendReportInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	ReportID uuid.UUID         `json:"report_id"`
}

// SendReportResult contains the provider's decision on a report.
type SendReportResult struct {
	State    billing.State `json:"state"` // accepted, in_doubt or rejected
	Response string        `json:"response"`
	Refused  bool          `json:"refused,omitempty"` // an operator has to act; false with state rejected: the report was too late for its invoice
}

// SendReport sends a stored report and records the result. Before it sends the report, it commits
// that the report may have been sent.
func (a *Activities) SendReport(ctx context.Context, in SendReportInput) (SendReportResult, error) {
	defer sendHeartbeats(ctx)()
	leased, err := a.store.Ledger.Lease(ctx, in.TenantID, in.ReportID, a.now(), a.leaseTime())
	if err != nil {
		return SendReportResult{}, err
	}
	sent, err := a.send(ctx, in.TenantID, leased)
	if err != nil {
		return SendReportResult{}, a.release(ctx, in.TenantID, leased, sent.newKey, err)
	}
	return sent.SendReportResult, a.complete(ctx, in.TenantID, leased, sent.SendReportResult)
}

// leaseTime returns the length of a report's lease. It is longer than a call to any provider, so that two attempts
// never send the same report at the same time.
func (a *Activities) leaseTime() time.Duration { return a.providers.Timeout() + 5*time.Second }

// complete stores the provider's decision on the report of a leased attempt, and counts it in the metrics.
func (a *Activities) complete(ctx context.Context, tenant metering.TenantID, l ledger.Leased, r SendReportResult) error {
	err := a.store.Ledger.CompleteAttempt(context.WithoutCancel(ctx), tenant, l, r.State, r.Response, a.now())
	return a.metrics.countReport(l.Kind, r.State, err)
}

// release ends the lease of an attempt that failed with an error. With newKey, the next attempt has another idempotency
// key.
func (a *Activities) release(ctx context.Context, tenant metering.TenantID, l ledger.Leased, newKey bool, err error) error {
	released := a.store.Ledger.Release(context.WithoutCancel(ctx), tenant, l.ReportID, l.Attempt, failureText(err), newKey)
	return errors.Join(err, released)
}

// releaseRefused ends the lease of an attempt that the provider refused. The report is planned again, as if it had
// never been sent. The caller ensures that the provider does not have the report.
func (a *Activities) releaseRefused(ctx context.Context, tenant metering.TenantID, l ledger.Leased, refusal error) error {
	released := a.store.Ledger.ReleaseRefused(context.WithoutCancel(ctx), tenant, l, failureText(refusal))
	return errors.Join(refusal, released)
}

// attempt is the result of one attempt to send a report.
type attempt struct {
	SendReportResult
	refusal error // the provider's refusal, if any
	newKey  bool  // after an error: a retry needs another idempotency key, because the provider repeats its answer to the old one
}

// send makes one attempt to send a report that the caller has leased. Providers recognize a repeated report only for a
// limited time. If the first attempt is older and the provider would add the report to a total again, send first checks
// whether the report has arrived. If send returns an error, the report is undecided and has to be sent again.
func (a *Activities) send(ctx context.Context, tenant metering.TenantID, l ledger.Leased) (attempt, error) {
	now := a.now()
	ctx, cancel := context.WithTimeout(ctx, a.leaseTime()-time.Second)
	defer cancel()
	p, err := a.openProvider(tenant, l.Provider)
	if err != nil {
		return attempt{}, err
	}
	if l.Invoiced && l.Kind == billing.QuantityReport && !l.MayHaveArrived {
		return attempt{SendReportResult: SendReportResult{State: billing.Rejected, Response: "the invoice is final; the next period bills the report's usage"}}, nil
	}
	sending := providers.Sending{
		Series: l.Series, ReportID: l.ReportID, Body: l.Body, Object: l.Object, Revision: l.Revision, FirstSentAt: l.FirstSentAt, Invoiced: l.Invoiced, Now: now,
	}
	if l.Counting == billing.Adds && now.Sub(l.FirstSentAt) > p.Remembers {
		found, err := a.findReport(ctx, tenant, p, sending)
		if err != nil || found.State != "" {
			return attempt{SendReportResult: found}, err
		}
	}
	outcome, _ := measureCall(a.metrics, p.Kind, func() (providers.Outcome, error) {
		outcome := p.Send(ctx, p.credentials, sending)
		return outcome, outcome.Err
	})
	if outcome.Object != "" && outcome.Object != l.Object {
		if err := a.store.Ledger.KeepObject(context.WithoutCancel(ctx), tenant, l.ReportID, outcome.Object); err != nil {
			return attempt{}, err
		}
	}
	switch {
	case outcome.Err == nil:
		return attempt{SendReportResult: SendReportResult{State: outcome.State, Response: outcome.Answer}}, nil
	case metering.CodeOf(outcome.Err) == metering.CodeProviderRefuse:
		return a.resultOfRefusal(ctx, tenant, p, sending, l.MayHaveArrived, outcome.Err), nil
	case !outcome.Look:
		return attempt{newKey: outcome.NewKey}, outcome.Err
	}
	found, unread := a.findReport(ctx, tenant, p, sending)
	if unread == nil && found.State == billing.Accepted {
		return attempt{SendReportResult: found}, nil
	}
	return attempt{newKey: outcome.NewKey && unread == nil}, outcome.Err
}

// resultOfRefusal returns the result for a report that the provider refused. A refusal applies only to the refused
// attempt. If an earlier attempt may have arrived, the outcome is unknown, unless findReport determines it.
func (a *Activities) resultOfRefusal(ctx context.Context, tenant metering.TenantID, p openedProvider, s providers.Sending, mayHaveArrived bool, refusal error) attempt {
	rejected := attempt{SendReportResult{State: billing.Rejected, Response: failureText(refusal), Refused: true}, refusal, false}
	inDoubt := attempt{SendReportResult{State: billing.InDoubt, Response: "refused, but an earlier attempt may have arrived: " + failureText(refusal)}, refusal, false}
	switch {
	case !mayHaveArrived:
		return rejected
	case s.Kind == billing.StatementReport, s.Counting != billing.Adds && s.Kind == billing.QuantityReport:
		return inDoubt
	}
	found, err := a.findReport(ctx, tenant, p, s)
	switch {
	case err == nil && found.State != "":
		return attempt{SendReportResult: found}
	case err == nil && s.Kind != billing.QuantityReport:
		return rejected // a list of charges or an invoice would show the report if it had arrived
	}
	return inDoubt
}

// findReport checks whether the provider has a report. The state is InDoubt if the provider cannot determine that, and
// "" if it does not have the report.
func (a *Activities) findReport(ctx context.Context, tenant metering.TenantID, p openedProvider, s providers.Sending) (SendReportResult, error) {
	var before ledger.Counted
	if s.Kind == billing.QuantityReport {
		var err error
		before, err = a.store.Ledger.CountedBefore(ctx, tenant, s.ReportID)
		if metering.CodeOf(err) == metering.CodeNotFound {
			return SendReportResult{State: billing.InDoubt, Response: "the customer's subscription changed after the report was sent; check at the provider whether it arrived"}, nil
		}
		if err != nil {
			return SendReportResult{}, err
		}
	}
	found, err := measureCall(a.metrics, p.Kind, func() (providers.Found, error) {
		return p.Find(ctx, p.credentials, s, placeOf(before), before.Total)
	})
	return SendReportResult{State: found.State, Response: found.Answer}, err
}

// placeOf returns the place at the provider of which the count is read.
func placeOf(c ledger.Counted) providers.Place {
	return providers.Place{Method: c.Method, Target: c.Target, Customer: c.Customer, Range: c.Range}
}

// ReadProviderInput names the customer.
type ReadProviderInput struct {
	CustomerInput
	Counts bool `json:"counts,omitempty"` // read only the counts
}

// ReadProviderResult contains the number of meter targets for each result of comparing the
// provider's count with the reports.
type ReadProviderResult struct {
	Counted int `json:"counted"` // the provider has counted the reports
	Behind  int `json:"behind"`  // the provider has not counted all reports yet
	Dropped int `json:"dropped"` // the provider accepted a report but did not count it; it is reported again
}

// ReadProvider reads the customer's state at the provider, stores the destination of each meter's
// usage, and checks which accepted reports the provider has counted. Some providers validate a
// report only after they have accepted it. Therefore, a report that is not counted within
// Description.CountsWithin is treated as dropped, unless Description.Invoices is set. A provider
// that takes statements has no state to read.
func (a *Activities) ReadProvider(ctx context.Context, in ReadProviderInput) (ReadProviderResult, error) {
	defer sendHeartbeats(ctx)()
	return a.readProvider(ctx, in)
}

// readProvider does the work of ReadProvider.
func (a *Activities) readProvider(ctx context.Context, in ReadProviderInput) (result ReadProviderResult, err error) {
	if !in.Counts {
		if err := a.readSide(ctx, in.CustomerInput); err != nil {
			return result, err
		}
	}
	return a.checkCounts(ctx, in.CustomerInput)
}

// readSide reads the customer's state at the provider and stores it. After a restore, it also reads the provider's
// totals. For a provider that takes statements, it does nothing.
func (a *Activities) readSide(ctx context.Context, in CustomerInput) error {
	readAt := a.now()
	wanted, err := a.store.Links.Wanted(ctx, in.TenantID, in.CustomerID)
	if err != nil || wanted.Provider.Statements {
		return err
	}
	side, err := a.fetchSide(ctx, in.TenantID, wanted)
	if err != nil {
		return err
	}
	if err := a.store.Links.Save(ctx, in.TenantID, in.CustomerID, wanted.Provider.ID, side, readAt); err != nil {
		return err
	}
	return a.readAddedUp(ctx, in)
}

// fetchSide reads the customer's state from the provider. For a customer that is not linked, it calls no provider.
func (a *Activities) fetchSide(ctx context.Context, tenant metering.TenantID, w ledger.Wanted) (billing.Side, error) {
	question := providers.Question{
		Customer: w.Customer, Meters: w.Meters, Mapping: w.Provider.Mapping, Amounts: w.Amounts, Text: w.Provider.Text,
		Followed: w.Followed, Streams: w.Streams,
	}
	if w.Customer == "" { // Read makes no call
		p, err := a.providers.Of(w.Provider.Kind)
		if err != nil {
			return billing.Side{}, err
		}
		return p.Read(ctx, providers.Credentials{}, question)
	}
	p, err := a.openProvider(tenant, w.Provider)
	if err != nil {
		return billing.Side{}, err
	}
	return measureCall(a.metrics, p.Kind, func() (billing.Side, error) { return p.Read(ctx, p.credentials, question) })
}

// checkCounts compares the provider's counts with the accepted reports that are not counted yet, and stores the
// results. It does nothing if the provider has no counts.
func (a *Activities) checkCounts(ctx context.Context, in CustomerInput) (result ReadProviderResult, err error) {
	active, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return result, err
	}
	provider, err := a.providers.Of(active.Kind)
	if err != nil {
		return result, err
	}
	within := provider.Describe().CountsWithin
	if within == 0 {
		return result, nil
	}
	open, err := a.store.Ledger.Uncounted(ctx, in.TenantID, in.CustomerID, a.now().Add(-within))
	if err != nil || len(open) == 0 {
		return result, err
	}
	p, err := a.openProvider(in.TenantID, active)
	if err != nil {
		return result, err
	}
	for _, place := range open {
		counted, err := measureCall(a.metrics, p.Kind, func() (metering.Decimal, error) { return p.Count(ctx, p.credentials, placeOf(place)) })
		if metering.CodeOf(err) == metering.CodeNotFound || isOwnRefusal(err) {
			continue // the target has no usage, or was deleted; its reports stay accepted until an invoice shows them
		}
		if err != nil {
			return result, err
		}
		if err := a.recordCount(ctx, in.TenantID, p.Description, place, counted, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// recordCount compares the provider's count of a meter target with the accepted reports, and records their
// state. The count may or may not include a recent report, and reports with equal sums cannot be
// distinguished. If the provider has invoices, no report is treated as dropped, because the invoices show the
// billed usage.
func (a *Activities) recordCount(ctx context.Context, tenant metering.TenantID, by providers.Description, place ledger.Counted, counted metering.Decimal, result *ReadProviderResult) error {
	who, withoutOld := by.Name, !by.Invoices && (counted.Equal(place.Seen) || counted.Equal(place.Total.Sub(place.Old)))
	reports, state, response := place.Reports, billing.Counted, fmt.Sprintf("found in the counts of %s", who)
	switch {
	case counted.Equal(place.Total):
		result.Counted++
	case len(place.OldReports) > 0 && counted.Equal(place.Seen.Add(place.Old)):
		reports = place.OldReports
		result.Counted++
	case len(place.OldReports) > 0 && withoutOld:
		reports, state, response = place.OldReports, billing.Rejected, fmt.Sprintf("%s accepted the report but did not count it; its dashboard lists the meter's errors", who)
		result.Dropped++
	default:
		state, response = billing.Accepted, fmt.Sprintf("%s has counted %s of %s so far", who, counted, place.Total)
		result.Behind++
	}
	return a.store.Ledger.StoreObserved(ctx, tenant, reports, state, response)
}
