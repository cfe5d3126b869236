package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// readingLimit is how long an outage is waited out before there is a period to go by.
const readingLimit = 72 * time.Hour

// tell tells the provider what it has not been told, one entry at a time: it takes
// one call at once for a customer and meter. What is refused for one meter does
// not hold back the others; where the provider does not answer, all of them wait.
func (s *syncCustomer) tell(ctx workflow.Context, begun activities.BeginSyncResult) (answer activities.FinishSyncInput, err error) {
	var tried []uuid.UUID
	for {
		prepared, problem, err := s.prepareEntries(ctx, begun)
		if err != nil || problem != "" {
			answer.Problem = problem
			return answer, err
		}
		open := slices.DeleteFunc(prepared.Send, func(e activities.Entry) bool {
			return slices.Contains(tried, e.ID) || slices.Contains(s.skipped, e.MeterID)
		})
		if len(open) == 0 {
			answer.Entries = append(answer.Entries, prepared.UpToDate...)
			return answer, s.confirm(ctx)
		}
		for _, entry := range open {
			if slices.Contains(s.skipped, entry.MeterID) { // since
				continue
			}
			tried = append(tried, entry.ID)
			end, err := s.tellEntry(ctx, entry)
			if err != nil {
				return answer, err
			}
			answer.Entries = append(answer.Entries, entry.ID)
			if end.problem != "" {
				answer.Problem = end.problem
			}
			if end.unsettled {
				return answer, nil
			}
		}
	}
}

// prepareEntries reads where the usage goes and writes down what to tell.
func (s *syncCustomer) prepareEntries(ctx workflow.Context, begun activities.BeginSyncResult) (prepared activities.PrepareEntriesResult, problem string, err error) {
	const tries = 3 // the customer's link may change between the two steps
	for range tries {
		s.show(ctx, "| items | |", "reading")
		reading := workflow.Now(ctx).Add(readingLimit)
		err = s.await(ctx, reading, "read the customer's items", do.ReadItems,
			activities.ReadItemsInput{TenantID: s.TenantID, CustomerID: s.CustomerID}, nil,
			func(state string) { s.show(ctx, "| items | |", state) })
		if _, message, refused := problemOf(err); refused {
			s.show(ctx, "| items | |", message)
			return prepared, message, nil
		}
		if temporal.IsCanceledError(err) || errors.Is(err, errLongHistory) {
			return prepared, "", err
		}
		if err != nil {
			return prepared, "the provider did not answer; sync again once it does", nil //nolint:nilerr // a problem that the requests are answered with
		}
		s.show(ctx, "| items | |", "read")
		err = workflow.ExecuteActivity(storing(ctx, "read totals, write the next entries"), do.PrepareEntries,
			activities.PrepareEntriesInput{TenantID: s.TenantID, CustomerID: s.CustomerID, After: begun.AfterEntry, Hold: s.skipped, Syncs: begun.Syncs}).Get(ctx, &prepared)
		code, message, refused := problemOf(err)
		if !refused {
			return prepared, "", err
		}
		if problem = message; code != string(metering.CodeConflict) {
			break
		}
	}
	return prepared, problem, nil
}

// tellEntry sends one entry until the provider has decided on it, and records
// the decision.
func (s *syncCustomer) tellEntry(ctx workflow.Context, entry activities.Entry) (ending, error) {
	if err := s.index(ctx, periodAttribute.ValueSet(entry.PeriodStart.Format(time.DateOnly))); err != nil {
		return ending{}, err
	}
	name := fmt.Sprintf("%s of %s for %s", entry.Quantity, entry.Method, entry.MeterID)
	row := fmt.Sprintf("| %s | %s to %s |", name, entry.PeriodStart.Format(time.DateOnly), entry.PeriodEnd.Format(time.DateOnly))
	s.show(ctx, row, "sending")
	var sent activities.SendEntryResult
	err := s.await(ctx, entry.Deadline, "send "+name, do.SendEntry,
		activities.SendEntryInput{TenantID: s.TenantID, EntryID: entry.ID}, &sent,
		func(state string) { s.show(ctx, row, state) })
	code, refusal, refused := problemOf(err)
	switch {
	case refused && code == string(metering.CodeConflict):
		s.show(ctx, row, "overtaken: "+refusal)
		return ending{}, nil // preparing again finds what is left
	case refused && code != string(metering.CodeProviderRefuse):
		s.show(ctx, row, refusal)
		return ending{problem: refusal}, nil
	case temporal.IsCanceledError(err) || errors.Is(err, errLongHistory):
		return ending{}, err
	case err != nil && !refused: // what is tried again ends only when its time is over
		s.show(ctx, row, "no answer until the deadline")
		return ending{"the provider did not answer until the period's deadline; sync again once it does", true}, nil
	case refused:
		sent = activities.SendEntryResult{Outcome: metering.EntryRejected, Answer: refusal}
	}
	err = workflow.ExecuteActivity(storing(ctx, "settle "+name), do.SettleEntry, activities.SettleEntryInput{
		TenantID: s.TenantID, EntryID: entry.ID, Outcome: sent.Outcome, Answer: sent.Answer,
	}).Get(ctx, nil)
	if err != nil {
		return ending{}, err
	}
	s.show(ctx, row, fmt.Sprintf("%s: %s", sent.Outcome, sent.Answer))
	switch {
	case sent.Outcome == metering.EntryAcknowledged:
		s.result.Sent++
	case refused || sent.Outcome == metering.EntryAmbiguous:
		return ending{problem: sent.Answer}, nil
	}
	return ending{}, nil
}

// confirm looks for what was acknowledged in what the provider has counted.
// What it does not find now, a later pass will.
func (s *syncCustomer) confirm(ctx workflow.Context) error {
	var confirmed activities.ConfirmEntriesResult
	err := workflow.ExecuteActivity(looking(ctx, "compare with what the provider has counted"), do.ConfirmEntries,
		activities.ConfirmEntriesInput{TenantID: s.TenantID, CustomerID: s.CustomerID}).Get(ctx, &confirmed)
	if temporal.IsCanceledError(err) {
		return err
	}
	if err == nil && confirmed.Confirmed+confirmed.Behind > 0 {
		s.show(ctx, "| summaries | |", fmt.Sprintf("%d confirmed, %d behind", confirmed.Confirmed, confirmed.Behind))
	}
	return nil
}
