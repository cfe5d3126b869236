package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

type resolveReportInput struct {
	ID   string `path:"id" doc:"Id of the report, from the lines of a sync"`
	Body struct {
		State resolvedState `json:"state" doc:"Outcome at the provider: 'accepted' if the provider has the report, otherwise 'rejected'"`
		Because
	}
}

func (s *server) registerReports() {
	huma.Register(s.api, post("resolve-report", "/v1/billing/reports/{id}/resolve", BillingWrite, "Resolve a report with an unknown outcome",
		"Only for a report in state `in_doubt`. Check at the provider whether the report arrived, then set `state` to `accepted` or `rejected`. Until then, "+
			"the report counts as billed. After `rejected`, the customer's next sync reports the usage again."), s.resolveReport)
}

// resolveReport stores an operator's decision about a report with an unknown outcome, or about a report to a
// previous connection.
func (s *server) resolveReport(ctx context.Context, in *resolveReportInput) (*struct{}, error) {
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such report")
	}
	reason, err := in.Body.reason()
	if err != nil {
		return nil, err
	}
	who := principalOf(ctx)
	return nil, s.Store.Ledger.Resolve(ctx, who.Tenant.ID, ledger.Resolution{Report: id, State: billing.State(in.Body.State), Actor: who.Actor, Reason: reason}, s.Now())
}
