package api

import (
	"cmp"
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

type price struct {
	Version       int              `json:"version"`
	BasePrice     metering.Decimal `json:"base_price" doc:"Fixed charge for each billing period"`
	IncludedUnits metering.Decimal `json:"included_units" doc:"Units that the base price includes"`
	OverageRate   metering.Decimal `json:"overage_rate" doc:"Price of each unit beyond the included units. With another model, 0"`
	Currency      string           `json:"currency" example:"USD"`
	EffectiveFrom *time.Time       `json:"effective_from" doc:"A billing period is charged at the version in force at its start. Null: from the beginning"`
	CreatedAt     time.Time        `json:"created_at"`
	Inherits      bool             `json:"inherits,omitempty" doc:"Present if the version ends the customer's own price. From effective_from on, the price in the customer's plan or the meter's own price applies, and the other fields of the version have no meaning"`
	ModelTerms
}

func showPrice(p billing.Price) price {
	shown := price{
		Version: p.Version, BasePrice: p.BasePrice, IncludedUnits: p.IncludedUnits, OverageRate: p.OverageRate,
		Currency: p.Currency, CreatedAt: p.CreatedAt.UTC(), Inherits: p.Inherits, ModelTerms: showModelTerms(p.Terms),
	}
	if from := p.EffectiveFrom.UTC(); from.Year() > 1 {
		shown.EffectiveFrom = &from
	}
	return shown
}

type pricing struct {
	MeterID   string  `json:"meter_id"`
	MeterSlug string  `json:"meter_slug"`
	Current   *price  `json:"current,omitempty"` // version that charges the current period
	Versions  []price `json:"versions" doc:"Versions, oldest first"`

	ProviderDifferences []providerDifference `json:"provider_differences,omitempty" doc:"Prices at the provider that differ from the version just set and charge its customers, as they were read last. The provider's price is billed. Present only in the response that sets a price"`
}

type pricingOutput struct{ Body pricing }

func (s *server) registerPrices() {
	huma.Register(s.api, get("list-pricing", "/v1/pricing", PricingRead, "List the prices of meters",
		"Lists the meters that have a price of their own. With `plan`, lists the meters that have a price in that plan. With `customer`, lists the meters "+
			"that have an own price of that customer. Meters are listed by id, archived meters included."), s.listPricing)
	huma.Register(s.api, get("get-pricing", "/v1/meters/{slug}/pricing", PricingRead, "Get a meter's prices",
		"Returns the price in force now and all versions: past, present and scheduled."), s.getPricing)
	huma.Register(s.api, heavy(put("set-pricing", "/v1/meters/{slug}/pricing", PricingWrite, "Set a meter's price",
		"Adds a version of the price. A billing period is charged at the version in force at its start.\n\n"+
			"- Without `effective_from`, the first price applies from the beginning, so it also charges billing periods that have begun.\n"+
			"- Without `effective_from`, a later version applies from the start of the next calendar month.\n"+
			"- A tenant has at most 20,000 price versions across all meters and plans. Beyond that the request returns 409.\n\n"+
			howToConfirm)), s.setPricing)
	huma.Register(s.api, remove("withdraw-pricing", "/v1/meters/{slug}/pricing/{version}", PricingWrite, "Withdraw a meter's scheduled price",
		"Returns 409 if the version has already begun."), s.withdrawPricing)
	huma.Register(s.api, remove("withdraw-plan-pricing", "/v1/plans/{slug}/pricing/{meter}/{version}", PricingWrite, "Withdraw a meter's scheduled price in a plan",
		"Returns 409 if the version has already begun."), s.withdrawPlanPricing)
}

func (s *server) getPricing(ctx context.Context, in *meterSlug) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, catalog.PriceOwner{})
}

// pricingOf returns a meter's prices for an owner: a plan, a customer, or the meter itself.
func (s *server) pricingOf(ctx context.Context, m metering.Meter, of catalog.PriceOwner) (*pricingOutput, error) {
	versions, err := s.Store.Prices.Versions(ctx, principalOf(ctx).Tenant.ID, m.ID, of)
	if err != nil {
		return nil, err
	}
	startOf, err := s.currentStarts(ctx, of)
	if err != nil {
		return nil, err
	}
	return &pricingOutput{showPricing(m.ID, m.Slug, versions, startOf(m.ID))}, nil
}

// currentStarts returns a function that returns the start of the current period in which an owner's price of a
// meter charges usage. For a customer, this is the billing period. For a plan or a meter, it is the calendar month.
func (s *server) currentStarts(ctx context.Context, of catalog.PriceOwner) (func(metering.MeterID) time.Time, error) {
	tenant, now := principalOf(ctx).Tenant, s.Now()
	if of.Customer == 0 {
		month := billing.CalendarPeriod(now, tenant.Location())
		return func(metering.MeterID) time.Time { return month.Start }, nil
	}
	schedules, err := s.Store.Ledger.Schedules(ctx, tenant.ID, of.Customer, now)
	return func(meter metering.MeterID) time.Time { return billing.PeriodOfMeter(schedules, meter, now).Start }, err
}

// showPricing converts the versions of a price for a response. Current is the version in force at start, the
// start of the current period.
func showPricing(meter metering.MeterID, slug string, versions []billing.Price, start time.Time) pricing {
	shown := pricing{MeterID: meter.String(), MeterSlug: slug, Versions: []price{}}
	for _, p := range versions {
		shown.Versions = append(shown.Versions, showPrice(p))
	}
	if p, ok := billing.InForce(versions, start); ok && !p.Inherits {
		shown.Current = new(showPrice(p))
	}
	return shown
}

type listPricingInput struct {
	Paging

	Plan     string `query:"plan" maxLength:"64" doc:"Slug of a plan, to list its prices instead of the meters' own"`
	Customer string `query:"customer" maxLength:"255" doc:"External ID of a customer, to list its own prices instead of the meters' own. Use 'plan' or 'customer', not both"`
}

// owner returns the plan or the customer that the query names. The zero owner selects the meters' own prices.
func (s *server) owner(ctx context.Context, in *listPricingInput) (of catalog.PriceOwner, err error) {
	if in.Plan != "" && in.Customer != "" {
		return of, metering.Invalid("query.customer", "must be absent if plan is given")
	}
	if in.Plan != "" {
		p, err := s.plan(ctx, in.Plan)
		return catalog.PriceOwner{Plan: p.ID}, err
	}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		return catalog.PriceOwner{Customer: c.ID}, withLocation("query.customer", err)
	}
	return of, nil
}

type listPricingOutput struct{ Body List[pricing] }

func (s *server) listPricing(ctx context.Context, in *listPricingInput) (*listPricingOutput, error) {
	of, err := s.owner(ctx, in)
	if err != nil {
		return nil, err
	}
	startOf, err := s.currentStarts(ctx, of)
	if err != nil {
		return nil, err
	}
	var after metering.MeterID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	prices, err := s.Store.Prices.List(ctx, principalOf(ctx).Tenant.ID, of, after, in.PageSize)
	if err != nil {
		return nil, err
	}
	show := func(p catalog.MeterPrices) pricing {
		return showPricing(p.MeterID, p.MeterSlug, p.Versions, startOf(p.MeterID))
	}
	cursorOf := func(p catalog.MeterPrices) metering.MeterID { return p.MeterID }
	return &listPricingOutput{listOf(ctx, s, prices, show, cursorOf)}, nil
}

// NewTerms contains the terms of a price in a request, without dimensions.
type NewTerms struct {
	BasePrice     SentDecimal `json:"base_price" required:"false" doc:"Fixed charge for each billing period. With the model 'overage', a price needs base_price, overage_rate or both; use 0 for free usage"`
	IncludedUnits SentDecimal `json:"included_units" required:"false" doc:"Units that the base price includes. They are subtracted before the model is applied"`
	OverageRate   SentDecimal `json:"overage_rate" required:"false" doc:"Price of each unit beyond the included units. Only with the model 'overage'"`
	Currency      *string     `json:"currency,omitempty" doc:"ISO 4217 code. Default: the currency of the price that the new price follows or replaces. Without such a price, the tenant's currency"`
	NewModel
}

// SentTerms contains the terms of a price in a request, with or without dimensions.
type SentTerms struct {
	NewTerms
	Dimensions *SentDimensions `json:"dimensions,omitempty"` // cannot be combined with the fields of SentDimensionRate
}

// NewPrice is a new price version.
type NewPrice struct {
	SentTerms
	EffectiveFrom SentTime `json:"effective_from" required:"false" doc:"Time from which the version applies. Default for the first price: from the beginning, so it also charges billing periods that have begun. Default for later versions: the start of the next calendar month. Replaces a version with the same time"`
	Confirm
}

type setPricingInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body struct{ NewPrice }
}

func (s *server) setPricing(ctx context.Context, in *setPricingInput) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.setPrice(ctx, m, catalog.PriceOwner{}, in.Body.NewPrice)
}

func (s *server) setPrice(ctx context.Context, m metering.Meter, of catalog.PriceOwner, in NewPrice) (*pricingOutput, error) {
	p, err := s.priceIn(ctx, m, of, in)
	if err != nil {
		return nil, err
	}
	if err := s.writePrice(ctx, "set-price", p, in.Token); err != nil {
		return nil, err
	}
	out, err := s.pricingOf(ctx, m, of)
	if err != nil {
		return nil, err
	}
	out.Body.ProviderDifferences, err = s.providerDifferences(ctx, m, p)
	return out, err
}

// writePrice stores a version of a price. If the price changes the charges of begun billing periods, the
// request must contain a confirmation token.
func (s *server) writePrice(ctx context.Context, operation string, p billing.Price, confirm string) error {
	who := principalOf(ctx)
	return s.writeCatalog(ctx, catalogWrite{
		change: struct {
			Operation string
			Meter     metering.MeterID
			Plan      metering.PlanID
			Customer  metering.CustomerID
			Terms     []byte
			From      time.Time
		}{operation, p.MeterID, p.PlanID, p.CustomerID, p.JSON(), p.EffectiveFrom.UTC()},
		subject: "The price", confirm: confirm, from: p.EffectiveFrom,
		impact: func(now time.Time) (ledger.Impact, error) {
			return s.Store.Ledger.PriceImpact(ctx, who.Tenant.ID, p, now)
		},
		write: func(within db.Catalog) error {
			_, err := within.Prices.Set(ctx, who.Tenant.ID, who.Actor, p)
			return err
		},
	})
}

// priceIn returns the price in a request body, with the defaults of EffectiveFrom and Currency.
func (s *server) priceIn(ctx context.Context, m metering.Meter, of catalog.PriceOwner, in NewPrice) (p billing.Price, err error) {
	tenant := principalOf(ctx).Tenant
	p = billing.Price{MeterID: m.ID, PlanID: of.Plan, CustomerID: of.Customer}
	if p.EffectiveFrom, err = s.priceFrom(ctx, m, of, in.EffectiveFrom); err != nil {
		return p, err
	}
	replaced, err := s.Store.Prices.Replaced(ctx, tenant.ID, p, s.Now())
	if err != nil {
		return p, err
	}
	if p.Terms, err = in.terms(cmp.Or(replaced.Currency, tenant.Currency)); err != nil {
		return p, err
	}
	return p, s.Store.Prices.RefuseDimensions(ctx, tenant.ID, m.ID, p.Terms)
}

// priceFrom returns the time from which a price applies. Without sent, the first price applies from the beginning,
// and a later version from the next calendar month.
func (s *server) priceFrom(ctx context.Context, m metering.Meter, of catalog.PriceOwner, sent SentTime) (from time.Time, err error) {
	if sent.sent {
		return sent.Time, nil
	}
	tenant := principalOf(ctx).Tenant
	versions, err := s.Store.Prices.Versions(ctx, tenant.ID, m.ID, of)
	if err != nil || len(versions) == 0 {
		return from, err
	}
	return billing.CalendarPeriod(s.Now(), tenant.Location()).End, nil
}

// PriceVersion identifies a version of a price in a path.
type PriceVersion struct {
	Version int `path:"version" minimum:"1" maximum:"2147483647"`
}

type withdrawPricingInput struct {
	Slug string `path:"slug" maxLength:"64"`
	PriceVersion
}

func (s *server) withdrawPricing(ctx context.Context, in *withdrawPricingInput) (*pricingOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	return s.withdrawPrice(ctx, m, catalog.PriceOwner{}, in.Version)
}

type withdrawPlanPricingInput struct {
	PlanMeter
	PriceVersion
}

func (s *server) withdrawPlanPricing(ctx context.Context, in *withdrawPlanPricingInput) (*pricingOutput, error) {
	p, m, err := s.planAndMeter(ctx, in.PlanMeter)
	if err != nil {
		return nil, err
	}
	return s.withdrawPrice(ctx, m, catalog.PriceOwner{Plan: p.ID}, in.Version)
}

func (s *server) withdrawPrice(ctx context.Context, m metering.Meter, of catalog.PriceOwner, version int) (*pricingOutput, error) {
	who := principalOf(ctx)
	p := billing.Price{MeterID: m.ID, PlanID: of.Plan, CustomerID: of.Customer, Version: version}
	if err := s.Store.Prices.Withdraw(ctx, who.Tenant.ID, who.Actor, p, s.Now); err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, of)
}
