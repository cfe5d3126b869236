package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/metering"
)

const (
	quotasPath       = "/v1/quotas"
	reservationsPath = quotasPath + "/reservations/{id}"
)

// registerQuotas registers the operations of quotas, reservations and entitlements.
func (s *server) registerQuotas() {
	huma.Register(s.api, put("set-quota", quotasPath, QuotasWrite, "Set a quota",
		"Limits the usage of a meter in each period, for one customer or for each customer of a plan. Exactly one of `customer` and `plan` must be set.\n\n"+
			"- A second request with the same customer or plan, meter, group and period changes the limit and the mode.\n"+
			"- A customer's own quota replaces the quota of its plan for the same meter, group and period. The plan's quotas apply from the `effective_from` of the plan's assignment on, even within a billing period.\n"+
			"- Usage is the total that is billed. A negative value in an event lowers the usage.\n"+
			"- A quota never rejects an event: usage that happened is always counted.\n"+
			"- A customer and a plan have at most 100 quotas each. Beyond that the request returns 409."), s.setQuota)
	huma.Register(s.api, get("list-quotas", quotasPath, QuotasRead, "List quotas",
		"Quotas are listed in order of creation. `customer` and `plan` filter the list."), s.listQuotas)
	huma.Register(s.api, remove("delete-quota", quotasPath+"/{id}", QuotasWrite, "Delete a quota",
		"The quota no longer limits anything when the response is sent. Reservations are kept."), s.deleteQuota)
	huma.Register(s.api, post("check-quotas", quotasPath+"/check", QuotasRead, "Check whether customers may use amounts",
		"Decides up to 100 checks, each on its own, all at the same point in time. Nothing is reserved: if two requests are checked at once, both can be allowed. Use `POST /v1/quotas/reserve` "+
			"to keep a limit exactly.\n\n"+
			"- `allowed` is false if usage, reservations and the amount would together be above a hard quota. Without a quota, everything is allowed.\n"+
			"- `exceeded` is true if usage, reservations and the amount together are above a quota, hard or soft. Usage alone can be within that quota.\n"+
			"- The other fields describe the hard quota that refuses the amount, or otherwise the quota with the least left. If the meter has no quota, these fields are null.\n"+
			"- Returns 503 during the first backfill of a meter with a quota."), s.checkQuotas)
	s.registerReservations()
	huma.Register(s.api, get("get-entitlements", "/v1/customers/{external_id}/entitlements", QuotasRead, "Get the features and quotas of a customer",
		"Returns the features of the plan that is assigned to the customer now, and the customer's quotas with their usage in the current period. A quota of the plan that the customer's own quota replaces is not listed."), s.entitlements)
	huma.Register(s.api, put("set-plan-features", "/v1/plans/{slug}/features", QuotasWrite, "Set the features of a plan",
		"Replaces all features of the plan. Odometer stores them for your application and does not interpret them."), s.setFeatures)
}

type quota struct {
	ID        string               `json:"id" example:"quo_5"`
	Customer  *string              `json:"customer" example:"acme" doc:"External ID of the customer. Null for a plan's quota"`
	Plan      *string              `json:"plan" example:"pro" doc:"Slug of the plan. Null for a customer's quota"`
	Meter     string               `json:"meter" example:"tokens" doc:"Slug of the meter"`
	Group     json.RawMessage      `json:"group" nullable:"true" doc:"Group of the meter that is limited. Null if the quota limits all usage"`
	Limit     *metering.Decimal    `json:"limit" doc:"Limit in each period. Null if usage is unlimited"`
	Mode      metering.QuotaMode   `json:"mode"`
	Period    metering.QuotaPeriod `json:"period" doc:"Time after which usage starts again from zero"`
	CreatedAt time.Time            `json:"created_at"`
}

func showQuota(q limits.StoredQuota) quota {
	shown := quota{ID: q.ID.String(), Meter: q.Meter.Slug, Limit: q.Limit, Mode: q.Mode, Period: q.Period, CreatedAt: q.CreatedAt.UTC()}
	if q.CustomerID != 0 {
		shown.Customer = &q.Customer
	} else {
		shown.Plan = &q.Plan
	}
	if q.Group != nil {
		shown.Group = q.Group.Key
	}
	return shown
}

type quotaOutput struct{ Body quota }

type setQuotaInput struct {
	Body struct {
		Customer string               `json:"customer,omitempty" maxLength:"255" doc:"External ID of the customer"`
		Plan     string               `json:"plan,omitempty" maxLength:"64" doc:"Slug of a plan: the quota limits each customer of the plan on its own"`
		Meter    string               `json:"meter" maxLength:"64" doc:"Slug of the meter"`
		Group    json.RawMessage      `json:"group,omitempty" doc:"Limits one group of the meter: an object with a value for each property of the meter's group_by. Omit 'group' to limit all usage"`
		Limit    *SentDecimal         `json:"limit" nullable:"true" doc:"Limit in each period, zero or more. Null: unlimited, for example to exempt a customer from the limit of the customer's plan"`
		Mode     metering.QuotaMode   `json:"mode" doc:"'hard': checks and reservations beyond the limit are not allowed. 'soft': checks and reservations beyond the limit are allowed and marked as exceeded"`
		Period   metering.QuotaPeriod `json:"period" doc:"Time after which usage starts again from zero:\n- 'billing': the customer's billing period.\n- 'month', 'day', 'hour': calendar month, day or hour of the meter's time zone.\n- 'lifetime': never."`
	}
}

func (s *server) setQuota(ctx context.Context, in *setQuotaInput) (*quotaOutput, error) {
	who := principalOf(ctx)
	if (in.Body.Customer == "") == (in.Body.Plan == "") {
		return nil, metering.Invalid("body", "must have exactly one of customer and plan")
	}
	q := metering.Quota{Mode: in.Body.Mode, Period: in.Body.Period}
	if in.Body.Limit != nil {
		q.Limit = &in.Body.Limit.Decimal
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	var err error
	if q.CustomerID, q.PlanID, err = s.customerOrPlan(ctx, in.Body.Customer, in.Body.Plan); err != nil {
		return nil, err
	}
	if q.Meter, err = s.meter(ctx, in.Body.Meter); err != nil {
		return nil, err
	}
	if sentGroup(in.Body.Group) {
		group, err := q.Meter.Version.QuotaGroup("body.group", in.Body.Group)
		if err != nil {
			return nil, err
		}
		q.Group = &group
	}
	set, err := s.Store.Quotas.Set(ctx, who.Tenant.ID, who.Actor, q, s.Now())
	if err != nil {
		return nil, err
	}
	return &quotaOutput{showQuota(set)}, nil
}

// customerOrPlan returns the id of the customer or the plan of a quota or an alert. If both names are empty,
// both ids are 0.
func (s *server) customerOrPlan(ctx context.Context, externalID, plan string) (metering.CustomerID, metering.PlanID, error) {
	if externalID != "" {
		c, err := s.customer(ctx, externalID)
		return c.ID, 0, err
	}
	if plan != "" {
		p, err := s.plan(ctx, plan)
		return 0, p.ID, err
	}
	return 0, 0, nil
}

func sentGroup(group json.RawMessage) bool { return len(group) > 0 && string(group) != "null" }

type listQuotasInput struct {
	Paging

	Customer string `query:"customer" maxLength:"255" doc:"External ID of a customer, to list the customer's own quotas"`
	Plan     string `query:"plan" maxLength:"64" doc:"Slug of a plan, to list the plan's quotas"`
}

type listQuotasOutput struct{ Body List[quota] }

func (s *server) listQuotas(ctx context.Context, in *listQuotasInput) (*listQuotasOutput, error) {
	if in.Customer != "" && in.Plan != "" {
		return nil, metering.Invalid("query.plan", "must be omitted with customer: a quota is of one of them")
	}
	var of limits.QuotaFilter
	var err error
	if of.Customer, of.Plan, err = s.customerOrPlan(ctx, in.Customer, in.Plan); err != nil {
		return nil, err
	}
	var after metering.QuotaID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	page, err := s.Store.Quotas.List(ctx, principalOf(ctx).Tenant.ID, of, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	cursorOf := func(q limits.StoredQuota) metering.QuotaID { return q.ID }
	return &listQuotasOutput{listOf(ctx, s, page, showQuota, cursorOf)}, nil
}

type deleteQuotaOutput struct {
	Body struct {
		ID      string `json:"id" example:"quo_5"`
		Deleted bool   `json:"deleted"`
	}
}

func (s *server) deleteQuota(ctx context.Context, in *struct {
	ID string `path:"id" example:"quo_5"`
}) (*deleteQuotaOutput, error) {
	who := principalOf(ctx)
	id, ok := metering.ParseQuotaID(in.ID)
	if !ok {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such quota")
	}
	if err := s.Store.Quotas.Delete(ctx, who.Tenant.ID, who.Actor, id); err != nil {
		return nil, err
	}
	out := new(deleteQuotaOutput)
	out.Body.ID, out.Body.Deleted = id.String(), true
	return out, nil
}

// QuotaAmount is an amount of a meter's usage to check or to reserve.
type QuotaAmount struct {
	Meter  string          `json:"meter" maxLength:"64" doc:"Slug of the meter"`
	Group  json.RawMessage `json:"group,omitempty" doc:"Group of the usage: an object with a value for each property of the meter's group_by. Without 'group', quotas of single groups do not limit the amount"`
	Amount SentDecimal     `json:"amount" doc:"Amount of usage, zero or more: the sum of the events' values for the aggregation 'sum', the number of events for 'count'"`
}

func (a QuotaAmount) read(at string) (limits.QuotaAmount, error) {
	if a.Amount.IsNegative() {
		return limits.QuotaAmount{}, metering.Invalid(at+".amount", "must be zero or more")
	}
	if !storable(a.Meter) {
		return limits.QuotaAmount{}, metering.Invalid(at+".meter", "must be UTF-8 without NUL")
	}
	read := limits.QuotaAmount{Meter: a.Meter, Amount: a.Amount.Decimal}
	if sentGroup(a.Group) {
		read.Group = a.Group
	}
	return read, nil
}

// QuotaCheck is a request to check whether a customer may use an amount.
type QuotaCheck struct {
	Customer string `json:"customer" maxLength:"255" doc:"External ID of the customer"`
	QuotaAmount
}

type checkQuotasInput struct {
	Body struct {
		Checks []QuotaCheck `json:"checks" minItems:"1" maxItems:"100" doc:"Amounts to check, each on its own"`
	}
}

type quotaDecision struct {
	Allowed  bool `json:"allowed" doc:"Whether usage, reservations and the amount are within every hard quota"`
	Exceeded bool `json:"exceeded" doc:"Whether usage, reservations and the amount would together be above a quota, hard or soft"`
	QuotaLevel
}

// QuotaLevel is the usage of a quota. All fields are null if there is no quota.
type QuotaLevel struct {
	Used      *metering.Decimal `json:"used" doc:"Total of the meter, or of the quota's group, in the current period, counted as for the bill"`
	Reserved  *metering.Decimal `json:"reserved" doc:"Amount of the reservations of the current period that are not settled, released or expired"`
	Limit     *metering.Decimal `json:"limit" doc:"Limit of the quota. Null if the quota is unlimited"`
	Remaining *metering.Decimal `json:"remaining" doc:"'limit' less 'used' and 'reserved', at least 0. Null if the quota is unlimited"`
	ResetsAt  *time.Time        `json:"resets_at" doc:"Start of the next period. Null if 'period' is 'lifetime'"`
	QuotaID   *string           `json:"quota_id" example:"quo_5"`
}

func showLevel(l *metering.QuotaLevel) QuotaLevel {
	if l == nil {
		return QuotaLevel{}
	}
	shown := QuotaLevel{Used: &l.Used, Reserved: &l.Reserved, Limit: l.Limit, Remaining: l.Remaining(), QuotaID: new(l.ID.String())}
	if resets := l.ResetsAt(); resets != nil {
		shown.ResetsAt = new(resets.UTC())
	}
	return shown
}

type quotaDecisions struct {
	Data []quotaDecision `json:"data" doc:"One item for each check, in the same order"`
}

type checkQuotasOutput struct{ Body quotaDecisions }

func (s *server) checkQuotas(ctx context.Context, in *checkQuotasInput) (*checkQuotasOutput, error) {
	checks := make([]limits.QuotaCheck, len(in.Body.Checks))
	for i, c := range in.Body.Checks {
		at := itemAt("body.checks", i)
		amount, err := c.read(at)
		if err != nil {
			return nil, err
		}
		if !storable(c.Customer) {
			return nil, metering.Invalid(at+".customer", "must be UTF-8 without NUL")
		}
		checks[i] = limits.QuotaCheck{Customer: c.Customer, QuotaAmount: amount}
	}
	decisions, err := s.Store.Quotas.Check(ctx, principalOf(ctx).Tenant.ID, checks, s.sharedNow())
	if err != nil {
		return nil, err
	}
	out := new(checkQuotasOutput)
	for _, d := range decisions {
		out.Body.Data = append(out.Body.Data, quotaDecision{d.Allowed, d.Exceeded, showLevel(d.Tightest)})
	}
	return out, nil
}
