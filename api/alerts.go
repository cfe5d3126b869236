package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/metering"
)

func (s *server) registerAlerts() {
	const path = "/v1/alerts"
	huma.Register(s.api, created(post("create-alert", path, AlertsWrite, "Create an alert",
		"An alert sends an `alert.triggered` message when a customer reaches a threshold. The scope is one customer, the customers of a plan, or all customers.\n\n"+
			"- `usage`: the total of a meter in a billing period, or of one of its groups.\n"+
			"- `spend`: the estimated charge of a billing period in `currency`, of a meter or of all meters. Charges in other currencies, and adjustments for late usage of closed periods, are not counted.\n"+
			"- `quota`: usage and reservations as a percentage of a quota's `limit`, in each period of the quota. Usage that arrives after its period ended can still reach a threshold of that period, up to 100 periods back. Without `meter`, the alert reads the quotas of all meters.\n"+
			"- `silence`: no event of a customer for `minutes`, from the `timestamp` of its latest event on. Odometer starts to watch a customer at an event that a meter counts. After that, every event restarts the minutes. A customer without an event in the last 30 days does not fire.\n"+
			"- Each threshold fires once for each customer and billing period, or period of a quota. Silence fires once for each latest event.\n"+
			"- `usage` and `spend` fire until the billing period closes. Usage that arrives later fires nothing.\n"+
			"- An alert fires at once if a threshold is already reached. Otherwise it fires a few seconds after the event or the reservation.\n"+
			"- An alert of a plan evaluates only billing periods to which the prices of the plan apply.\n"+
			"- A `spend` alert also requires the permission `billing:read`.\n"+
			"- A tenant has at most 1,000 alerts, and 100 for one customer. Beyond that the request returns 409.")), s.createAlert)
	huma.Register(s.api, reading(heavy(post("dry-run-alert", path+"/dry-run", AlertsWrite, "List the days on which an alert would have fired",
		"Takes the same body as creating an alert, and changes nothing. Returns the days of the last 30 on which a customer would have reached a threshold.\n\n"+
			"- The dry run uses the current prices, plans, quotas and meters. An event counts on the day of its `timestamp`.\n"+
			"- For `quota`, the dry run compares usage without reservations.\n"+
			"- The dry run reads at most 1,000 customers of the scope, in order of creation.\n"+
			"- `highest` contains the values of the customer with the highest value, day by day. It is absent for `silence`, and if no customer has a value above 0.\n"+
			"- A `spend` alert also requires the permission `billing:read`."))), s.dryRunAlert)
	huma.Register(s.api, get("list-alerts", path, AlertsRead, "List alerts",
		"Alerts are listed in order of creation."), s.listAlerts)
	huma.Register(s.api, get("get-alert", path+"/{id}", AlertsRead, "Get an alert",
		"The response contains the scope, the thresholds and whether the alert is enabled."), s.getAlert)
	huma.Register(s.api, patch("update-alert", path+"/{id}", AlertsWrite, "Update, disable or enable an alert",
		"Updates the fields that the body contains and keeps the other fields. A new threshold that is already reached fires at once. A threshold that has fired does not fire again in the same billing period, or period of a quota. A `spend` alert also requires the permission `billing:read`."), s.updateAlert)
	huma.Register(s.api, remove("delete-alert", path+"/{id}", AlertsWrite, "Delete an alert and its firings",
		"Messages that were already sent stay in the deliveries of webhooks."), s.deleteAlert)
	huma.Register(s.api, get("list-firings", path+"/{id}/firings", AlertsRead, "List an alert's firings",
		"Firings are listed newest first. Odometer keeps a firing for 400 days, and a firing of a `lifetime` quota as long as the alert.\n\n"+
			"- `period` is the billing period. For `quota`, it is the period of the quota. For `silence`, it is the time from the last event until `minutes` had passed.\n"+
			"- A `spend` alert also requires the permission `billing:read`."), s.listFirings)
}

// reading marks a POST operation as read-only, so that its response can be refused for lack of memory.
func reading(op huma.Operation) huma.Operation {
	op.Metadata["reads"] = true
	return op
}

// Alert is a rule that notifies the tenant when a customer reaches a threshold.
type Alert struct {
	ID         string             `json:"id" example:"alt_42"`
	Name       string             `json:"name"`
	Type       metering.AlertType `json:"type"`
	Customer   string             `json:"customer,omitempty" example:"acme" doc:"External ID of the only customer in the scope"`
	Plan       string             `json:"plan,omitempty" example:"pro" doc:"Slug of the plan. The customers of the plan are the scope"`
	All        bool               `json:"all" doc:"Whether all customers are the scope"`
	Meter      string             `json:"meter,omitempty" example:"calls" doc:"Slug of the meter. Absent if a 'spend' or 'quota' alert covers all meters, and for 'silence'"`
	Group      json.RawMessage    `json:"group,omitempty" doc:"The only group that the alert covers, or the group of the quotas: value of each group_by property"`
	Thresholds []metering.Decimal `json:"thresholds" nullable:"false" doc:"Units of usage, amounts in 'currency' or percentages of a quota, ascending. Empty for 'silence'"`
	Currency   string             `json:"currency,omitempty" example:"USD" doc:"Currency of spend"`
	Minutes    int                `json:"minutes,omitempty" doc:"Minutes of silence"`
	Enabled    bool               `json:"enabled"`
	CreatedAt  time.Time          `json:"created_at"`
}

func showAlert(a metering.Alert) Alert {
	shown := Alert{
		ID: a.ID.String(), Name: a.Name, Type: a.Type, Customer: a.ExternalID, Plan: a.Plan, All: a.CustomerID == 0 && a.PlanID == 0, Meter: a.Meter,
		Thresholds: a.Thresholds, Currency: a.Currency, Minutes: a.Minutes, Enabled: a.Enabled, CreatedAt: a.CreatedAt.UTC(),
	}
	if a.Group != nil {
		shown.Group = a.Group.Key
	}
	if shown.Thresholds == nil {
		shown.Thresholds = []metering.Decimal{}
	}
	return shown
}

// alertDefinition is the body of a request that creates an alert.
type alertDefinition struct {
	Name       string             `json:"name" minLength:"1" maxLength:"255"`
	Type       metering.AlertType `json:"type"`
	Customer   string             `json:"customer,omitempty" maxLength:"255" doc:"External ID of a customer. Send either 'customer', 'plan' or 'all'"`
	Plan       string             `json:"plan,omitempty" maxLength:"64" doc:"Slug of a plan"`
	All        bool               `json:"all,omitempty" doc:"'true': all customers"`
	Meter      string             `json:"meter,omitempty" maxLength:"64" doc:"Slug of a meter. Required for 'usage'. If omitted for 'spend' or 'quota', the alert covers all meters"`
	Group      json.RawMessage    `json:"group,omitempty" doc:"For 'usage' and 'quota': the value of each group_by property of the meter, so that the alert covers only this group, or only the quotas of this group. A group that the meter counts in '$other' returns 422"`
	Thresholds []SentDecimal      `json:"thresholds,omitempty" maxItems:"10" doc:"For 'usage', 'spend' and 'quota': 1 to 10 numbers above 0. For 'quota': percentages of at most 1,000 with at most 2 decimals"`
	Currency   string             `json:"currency,omitempty" maxLength:"3" doc:"For 'spend': the currency of the charges. Default: the tenant's currency"`
	Minutes    int                `json:"minutes,omitempty" minimum:"1" maximum:"10080" doc:"For 'silence': the number of minutes without an event"`
}

type createAlertInput struct {
	Repeatable
	Body alertDefinition
}

type alertOutput struct{ Body Alert }

func (s *server) createAlert(ctx context.Context, in *createAlertInput) (*alertOutput, error) {
	who := principalOf(ctx)
	a, err := s.definedAlert(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	shown, _, err := once(ctx, s, in.Repeatable, "create-alert", in.Body, func(within db.Creators) (Alert, error) {
		created, err := within.Alerts.Create(ctx, who.Tenant.ID, who.Actor, a, s.Now())
		return showAlert(created), err
	})
	if err != nil {
		return nil, err
	}
	return &alertOutput{shown}, nil
}

// requireSpend returns an error for a spend alert if the caller lacks BillingRead, because spend alerts show
// charges.
func requireSpend(ctx context.Context, of metering.AlertType) error {
	if who := principalOf(ctx); of == metering.SpendAlert && !BillingRead.allows(who) {
		return metering.Errorf(metering.CodeForbidden, "%s lacks permission %s, which spend alerts require because they show charges", who, BillingRead)
	}
	return nil
}

// requireSpendOfStored applies requireSpend to a stored alert.
func (s *server) requireSpendOfStored(ctx context.Context, id metering.AlertID) error {
	a, err := s.Store.Alerts.Get(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return err
	}
	return requireSpend(ctx, a.Type)
}

// definedAlert converts a definition to a validated alert. It loads the customer, the plan and the meter.
func (s *server) definedAlert(ctx context.Context, d alertDefinition) (a metering.Alert, err error) {
	if err := requireSpend(ctx, d.Type); err != nil {
		return a, err
	}
	tenant := principalOf(ctx).Tenant
	a = metering.Alert{Name: d.Name, Type: d.Type, Thresholds: thresholdsOf(d.Thresholds), Currency: d.Currency, Minutes: d.Minutes, Enabled: true}
	if a.Type == metering.SpendAlert && a.Currency == "" {
		a.Currency = tenant.Currency
	}
	if err := s.resolveScope(ctx, d, &a); err != nil {
		return a, err
	}
	if d.Meter == "" {
		if d.Group != nil {
			return a, metering.Invalid("body.group", "requires body.meter")
		}
		return a, a.Validate()
	}
	m, err := s.meter(ctx, d.Meter)
	if err != nil {
		return a, err
	}
	a.MeterID = m.ID
	if d.Group != nil {
		group, err := m.Version.QuotaGroup("body.group", d.Group)
		if err != nil {
			return a, err
		}
		a.Group = &group
	}
	return a, a.Validate()
}

// resolveScope sets the customer or the plan of a new alert. Neither is set if the scope is all customers.
func (s *server) resolveScope(ctx context.Context, d alertDefinition, a *metering.Alert) error {
	scopes := 0
	for _, given := range []bool{d.Customer != "", d.Plan != "", d.All} {
		if given {
			scopes++
		}
	}
	if scopes != 1 {
		return metering.Invalid("body", "must have exactly one of customer, plan and all")
	}
	var err error
	a.CustomerID, a.PlanID, err = s.customerOrPlan(ctx, d.Customer, d.Plan)
	return err
}

func thresholdsOf(sent []SentDecimal) []metering.Decimal {
	decimals := make([]metering.Decimal, len(sent))
	for i, d := range sent {
		decimals[i] = d.Decimal
	}
	return decimals
}

type listAlertsOutput struct{ Body List[Alert] }

func (s *server) listAlerts(ctx context.Context, in *struct{ Paging }) (*listAlertsOutput, error) {
	var after metering.AlertID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	list, err := s.Store.Alerts.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &listAlertsOutput{listOf(ctx, s, list, showAlert, func(a metering.Alert) metering.AlertID { return a.ID })}, nil
}

// AlertPath identifies an alert in a path.
type AlertPath struct {
	ID string `path:"id" example:"alt_42"`
}

func (p AlertPath) alert() metering.AlertID {
	id, _ := metering.ParseAlertID(p.ID) // 0 on error; no alert has the id 0
	return id
}

func (s *server) getAlert(ctx context.Context, in *AlertPath) (*alertOutput, error) {
	a, err := s.Store.Alerts.Get(ctx, principalOf(ctx).Tenant.ID, in.alert())
	if err != nil {
		return nil, err
	}
	return &alertOutput{showAlert(a)}, nil
}

type updateAlertInput struct {
	AlertPath
	Body struct {
		Name       *string       `json:"name,omitempty" minLength:"1" maxLength:"255"`
		Thresholds []SentDecimal `json:"thresholds,omitempty" minItems:"1" maxItems:"10" doc:"Replaces the thresholds of a 'usage', 'spend' or 'quota' alert"`
		Minutes    *int          `json:"minutes,omitempty" minimum:"1" maximum:"10080" doc:"For 'silence': the number of minutes without an event"`
		Enabled    *bool         `json:"enabled,omitempty" doc:"'false' disables the alert. 'true' enables it"`
	}
}

func (s *server) updateAlert(ctx context.Context, in *updateAlertInput) (*alertOutput, error) {
	who := principalOf(ctx)
	if err := s.requireSpendOfStored(ctx, in.alert()); err != nil {
		return nil, err
	}
	change := limits.AlertChange{Name: in.Body.Name, Minutes: in.Body.Minutes, Enabled: in.Body.Enabled}
	if len(in.Body.Thresholds) > 0 {
		change.Thresholds = thresholdsOf(in.Body.Thresholds)
	}
	a, err := s.Store.Alerts.Update(ctx, who.Tenant.ID, who.Actor, in.alert(), change, s.Now())
	if err != nil {
		return nil, err
	}
	return &alertOutput{showAlert(a)}, nil
}

type deleteAlertOutput struct {
	Body struct {
		ID      string `json:"id" example:"alt_42"`
		Deleted bool   `json:"deleted"`
	}
}

func (s *server) deleteAlert(ctx context.Context, in *AlertPath) (*deleteAlertOutput, error) {
	who := principalOf(ctx)
	if err := s.Store.Alerts.Delete(ctx, who.Tenant.ID, who.Actor, in.alert(), s.Now()); err != nil {
		return nil, err
	}
	out := new(deleteAlertOutput)
	out.Body.ID, out.Body.Deleted = in.ID, true
	return out, nil
}

type firing struct {
	ID         string               `json:"id" example:"fir_42"`
	CustomerID string               `json:"customer_id"`
	ExternalID string               `json:"customer_external_id"`
	Threshold  metering.Decimal     `json:"threshold" doc:"The threshold that was reached. For 'silence', 'minutes' of the alert"`
	Value      metering.Decimal     `json:"value" doc:"The total, the charge, the percentage or the minutes at occurred_at. A percentage is rounded down to 2 decimals"`
	QuotaID    *string              `json:"quota_id" example:"quo_42" doc:"Id of the quota that reached the threshold. Null unless the alert has the type 'quota'"`
	Period     outbox.MessagePeriod `json:"period"`
	Late       bool                 `json:"late" doc:"Whether the period had ended when the threshold was reached"`
	OccurredAt time.Time            `json:"occurred_at"`
}

func showFiring(f metering.Firing) firing {
	return firing{
		f.ID.String(), f.CustomerID.String(), f.ExternalID, f.Threshold, f.Value, outbox.ShownQuota(f.QuotaID), outbox.PeriodOf(f.Period), f.Late, f.At.UTC(),
	}
}

type listFiringsInput struct {
	AlertPath
	Paging
}

type listFiringsOutput struct{ Body List[firing] }

func (s *server) listFirings(ctx context.Context, in *listFiringsInput) (*listFiringsOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	if err := s.requireSpendOfStored(ctx, in.alert()); err != nil {
		return nil, err
	}
	var before metering.FiringID
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	list, err := s.Store.Alerts.Firings(ctx, tenant, in.alert(), before, in.PageSize)
	if err != nil {
		return nil, err
	}
	return &listFiringsOutput{listOf(ctx, s, list, showFiring, func(f metering.Firing) metering.FiringID { return f.ID })}, nil
}

type dryRunInput struct{ Body alertDefinition }

type dryRunOutput struct{ Body dryRun }

type dryRun struct {
	Customers int            `json:"customers" doc:"Number of customers in the scope that were compared"`
	Data      []dryRunFiring `json:"data" nullable:"false" doc:"Days on which a customer would have reached a threshold, by customer and time"`
	More      bool           `json:"more" doc:"Whether the scope has more than 1,000 customers, or would have had more than 10,000 firings. Further customers and firings are not listed"`
	Highest   *dryRunCourse  `json:"highest,omitempty"`
}

type dryRunCourse struct {
	CustomerID string      `json:"customer_id"`
	ExternalID string      `json:"customer_external_id"`
	QuotaID    *string     `json:"quota_id" example:"quo_42" doc:"Id of the quota. Null unless the alert has the type 'quota'"`
	Days       []dryRunDay `json:"days" nullable:"false" doc:"Days of the last 30, in ascending order"`
}

type dryRunDay struct {
	Day   string           `json:"day" format:"date" doc:"Day in the tenant's time zone"`
	Value metering.Decimal `json:"value" doc:"The total, the charge or the percentage at the end of the day, or now. If a period ended on the day with a higher value, that value"`
}

type dryRunFiring struct {
	CustomerID string               `json:"customer_id"`
	ExternalID string               `json:"customer_external_id"`
	Day        string               `json:"day" format:"date" doc:"Day in the tenant's time zone"`
	Threshold  metering.Decimal     `json:"threshold" doc:"The threshold that was reached. For 'silence', 'minutes' of the alert"`
	Value      metering.Decimal     `json:"value" doc:"The total, the charge or the percentage at the end of the day. For 'silence', 'minutes' of the alert"`
	QuotaID    *string              `json:"quota_id" example:"quo_42" doc:"Id of the quota that reached the threshold. Null unless the alert has the type 'quota'"`
	Period     outbox.MessagePeriod `json:"period"`
}

func (s *server) dryRunAlert(ctx context.Context, in *dryRunInput) (*dryRunOutput, error) {
	a, err := s.definedAlert(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	run, err := s.Store.Evaluations.DryRun(ctx, principalOf(ctx).Tenant.ID, a, s.Now())
	if err != nil {
		return nil, err
	}
	shown := dryRun{run.Customers, make([]dryRunFiring, 0, len(run.Firings)), run.More, showCourse(run.Highest)}
	for _, f := range run.Firings {
		shown.Data = append(shown.Data, dryRunFiring{
			f.CustomerID.String(), f.ExternalID, f.Day.Format(time.DateOnly), f.Threshold, f.Value, outbox.ShownQuota(f.QuotaID), outbox.PeriodOf(f.Period),
		})
	}
	return &dryRunOutput{shown}, nil
}

func showCourse(c *limits.DryCourse) *dryRunCourse {
	if c == nil {
		return nil
	}
	shown := &dryRunCourse{c.CustomerID.String(), c.ExternalID, outbox.ShownQuota(c.QuotaID), make([]dryRunDay, 0, len(c.Days))}
	for _, d := range c.Days {
		shown.Days = append(shown.Days, dryRunDay{d.Day.Format(time.DateOnly), d.Value})
	}
	return shown
}
