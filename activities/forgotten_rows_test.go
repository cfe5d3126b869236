package activities_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// TestActivitiesEndIfTheirRowsAreMissing calls activities with rows that a restored database lacks, as a run does that
// began before the restore. Each activity succeeds or fails with an error that ends the run, so that no activity is
// retried forever.
func TestActivitiesEndIfTheirRowsAreMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := activities.CustomerInput{TenantID: b.tenant, CustomerID: 987654}
	event := activities.ProviderEventInput{TenantID: b.tenant, RowID: 987654}
	pass := uuid.New()
	for name, call := range map[string]struct{ do, in any }{
		"BeginSync":    {b.do.BeginSync, gone},
		"ReadProvider": {b.do.ReadProvider, activities.ReadProviderInput{CustomerInput: gone}},
		"PlanReports":  {b.do.PlanReports, activities.PlanReportsInput{CustomerInput: gone, PassID: pass}},
		"PlanForAcme":  {b.do.PlanReports, activities.PlanReportsInput{CustomerInput: b.customerInput(), PassID: pass}},
		"SendReport":   {b.do.SendReport, activities.SendReportInput{TenantID: b.tenant, ReportID: uuid.New()}},
		"FinishSync":   {b.do.FinishSync, activities.FinishSyncInput{CustomerInput: gone, PassID: pass, Reports: []uuid.UUID{uuid.New()}}},
		"FinishOfAcme": {b.do.FinishSync, activities.FinishSyncInput{CustomerInput: b.customerInput(), PassID: pass, Reports: []uuid.UUID{uuid.New()}}},
		"SyncBatch":    {b.do.SyncBatch, activities.BatchInput{TenantID: b.tenant, Customers: []metering.CustomerID{gone.CustomerID}}},
		"CloseBatch":   {b.do.CloseBatch, activities.BatchInput{TenantID: b.tenant, Customers: []metering.CustomerID{gone.CustomerID}}},
		"NoTenant":     {b.do.SyncBatch, activities.BatchInput{TenantID: 987654, Customers: []metering.CustomerID{gone.CustomerID}}},
		"DuePeriods":   {b.do.DuePeriods, activities.CustomerPageInput{TenantID: 987654, Limit: 10}},
		"ReadEvent":    {b.do.ReadEvent, event},
		"ReadInvoice":  {b.do.ReadInvoice, event},
		"RequestSync":  {b.do.RequestSync, event},
		"ReadSync":     {b.do.ReadSync, activities.ReadSyncInput{TenantID: b.tenant, SyncID: uuid.New()}},
		"FinishEvent":  {b.do.FinishEvent, activities.FinishEventInput{ProviderEventInput: event, Outcome: "none"}},
		"PlanBackfill": {b.do.PlanBackfill, activities.BackfillInput{TenantID: b.tenant, MeterVersionID: 987654}},
		"Complete":     {b.do.CompleteMeterVersion, activities.BackfillInput{TenantID: b.tenant, MeterVersionID: 987654}},
		"ReadRotation": {b.do.ReadRotation, activities.RotationInput{TenantID: b.tenant, RotationID: 987654}},
		"EndRotation":  {b.do.EndRotation, activities.EndRotationInput{RotationInput: activities.RotationInput{TenantID: b.tenant, RotationID: 987654}}},
		"SendMessages": {b.do.SendMessages, activities.SendMessagesInput{TenantID: b.tenant, EndpointID: 987654}},
	} {
		if _, err := b.ExecuteActivity(call.do, call.in); err != nil {
			require.NotContains(t, err.Error(), "SQLSTATE", name)
			require.Regexp(t, `there is no such|not found|no billing provider`, err.Error(), name)
		}
	}
}
