package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/metering"
)

// registerCustomerPrices registers the operations on a customer's own prices.
func (s *server) registerCustomerPrices() {
	const path = "/v1/customers/{external_id}/pricing/{meter}"
	huma.Register(s.api, get("get-customer-pricing", path, PricingRead, "Get a customer's own price of a meter",
		"Returns the price in force now for this customer alone and all versions. Without an own price, the price in the customer's plan or the meter's own "+
			"price applies. `GET /v1/pricing` with `customer` lists all own prices of a customer."), s.getCustomerPricing)
	huma.Register(s.api, put("set-customer-pricing", path, PricingWrite, "Set a customer's own price of a meter",
		"Adds a version of the price. The price replaces the price in the customer's plan and the meter's own price. A billing period is charged at the "+
			"version in force at its start.\n\n"+
			"- Without `effective_from`, the version applies from the start of the customer's next billing period of the meter, or of the current "+
			"period if the customer was created in the current period.\n"+
			"- A customer has at most 1,000 versions of own prices. Beyond that the request returns 409.\n\n"+
			howToConfirm), s.setCustomerPricing)
	huma.Register(s.api, post("preview-customer-pricing", path+"/preview", PricingWrite, "Preview the effect of a customer's own price",
		aboutPreview), s.previewCustomerPricing)
	huma.Register(s.api, post("end-customer-pricing", path+"/end", PricingWrite, "End a customer's own price of a meter",
		"From `effective_from` on, the price in the customer's plan or the meter's own price applies again. The end is stored as a version of the price with "+
			"`inherits`. Withdraw a scheduled end as a scheduled price.\n\n"+
			"- Returns 409 if no own price is in force or scheduled before `effective_from`.\n\n"+
			howToConfirm), s.endCustomerPricing)
	huma.Register(s.api, remove("withdraw-customer-pricing", path+"/{version}", PricingWrite, "Withdraw a customer's scheduled own price",
		"Returns 409 if the version has already begun. `POST .../end` ends a price that has begun."), s.withdrawCustomerPricing)
}

// CustomerMeter identifies a meter of a customer in a path.
type CustomerMeter struct {
	CustomerPath
	Meter string `path:"meter" maxLength:"64" doc:"The meter's slug"`
}

// customerAndMeter returns the customer and the meter that a path identifies.
func (s *server) customerAndMeter(ctx context.Context, in CustomerMeter) (c metering.Customer, m metering.Meter, err error) {
	if c, err = s.customerAt(ctx, in.CustomerPath); err != nil {
		return c, m, err
	}
	m, err = s.meter(ctx, in.Meter)
	return c, m, err
}

func (s *server) getCustomerPricing(ctx context.Context, in *CustomerMeter) (*pricingOutput, error) {
	c, m, err := s.customerAndMeter(ctx, *in)
	if err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, catalog.PriceOwner{Customer: c.ID})
}

// NewOwnPrice is a new version of a customer's own price. Unlike a NewPrice, it never applies from the beginning by
// default.
type NewOwnPrice struct {
	SentTerms
	EffectiveFrom SentTime `json:"effective_from" required:"false" doc:"Time from which the version applies. Default: the start of the customer's next billing period of the meter, or of the current period if the customer was created in the current period. Replaces a version with the same time"`
	Confirm
}

type setCustomerPricingInput struct {
	CustomerMeter
	Body struct{ NewOwnPrice }
}

// priceStart returns the time from which a change of a customer's own price of a meter applies.
func (s *server) priceStart(ctx context.Context, c metering.Customer, m metering.Meter, sent SentTime) (time.Time, error) {
	return s.effectiveFrom(ctx, c, sent, func(schedules []billing.Facts) time.Time { return billing.PriceStart(schedules, m.ID) })
}

// newCustomerPrice returns the meter, the price in the request with EffectiveFrom set, and the customer as owner.
func (s *server) newCustomerPrice(ctx context.Context, in *setCustomerPricingInput) (m metering.Meter, price NewPrice, of catalog.PriceOwner, err error) {
	c, m, err := s.customerAndMeter(ctx, in.CustomerMeter)
	if err != nil {
		return m, price, of, err
	}
	from, err := s.priceStart(ctx, c, m, in.Body.EffectiveFrom)
	price = NewPrice(in.Body.NewOwnPrice)
	price.EffectiveFrom = SentTime{Time: from, sent: true}
	return m, price, catalog.PriceOwner{Customer: c.ID}, err
}

func (s *server) setCustomerPricing(ctx context.Context, in *setCustomerPricingInput) (*pricingOutput, error) {
	m, price, of, err := s.newCustomerPrice(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.setPrice(ctx, m, of, price)
}

func (s *server) previewCustomerPricing(ctx context.Context, in *setCustomerPricingInput) (*pricePreviewOutput, error) {
	m, price, of, err := s.newCustomerPrice(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.previewPrice(ctx, m, of, price)
}

type endCustomerPricingInput struct {
	CustomerMeter
	Body struct {
		EffectiveFrom SentTime `json:"effective_from" required:"false" doc:"Time from which the customer has no own price. Default: the start of the customer's next billing period of the meter, or of the current period if the customer was created in the current period"`
		Confirm
	}
}

func (s *server) endCustomerPricing(ctx context.Context, in *endCustomerPricingInput) (*pricingOutput, error) {
	c, m, err := s.customerAndMeter(ctx, in.CustomerMeter)
	if err != nil {
		return nil, err
	}
	p := billing.Price{MeterID: m.ID, CustomerID: c.ID, Inherits: true}
	if p.EffectiveFrom, err = s.priceStart(ctx, c, m, in.Body.EffectiveFrom); err != nil {
		return nil, err
	}
	if err := s.writePrice(ctx, "end-price", p, in.Body.Token); err != nil {
		return nil, err
	}
	return s.pricingOf(ctx, m, catalog.PriceOwner{Customer: c.ID})
}

type withdrawCustomerPricingInput struct {
	CustomerMeter
	PriceVersion
}

func (s *server) withdrawCustomerPricing(ctx context.Context, in *withdrawCustomerPricingInput) (*pricingOutput, error) {
	c, m, err := s.customerAndMeter(ctx, in.CustomerMeter)
	if err != nil {
		return nil, err
	}
	return s.withdrawPrice(ctx, m, catalog.PriceOwner{Customer: c.ID}, in.Version)
}
