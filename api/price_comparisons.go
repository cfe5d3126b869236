package api

import (
	"context"
	"errors"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// priceComparison compares a customer's saved prices with the prices that the billing provider charges.
type priceComparison struct {
	ComparedAt  *time.Time        `json:"compared_at" doc:"Time at which the provider's prices were read. Null if the prices are not compared yet"`
	Reason      string            `json:"reason,omitempty" doc:"Reason why the prices are not compared yet"`
	Differences []priceDifference `json:"differences" doc:"Meters for which Odometer's price differs from the provider's price. The provider's price is billed"`
}

type priceDifference struct {
	MeterID   string `json:"meter_id" example:"mtr_7"`
	MeterSlug string `json:"meter_slug"`
	OurPrice  string `json:"our_price" doc:"Description of Odometer's price" example:"0.02 USD for each unit"`
	TheirDifference
}

// TheirDifference is the difference between a provider's price and Odometer's price.
type TheirDifference struct {
	TheirPrice string `json:"their_price" doc:"Description of the provider's price" example:"0.03 USD for each unit"`
	Difference string `json:"first_difference" doc:"The first difference between the two prices. Base price and included units are compared as parts of the tiers" example:"tier 1: unit_price is 0.02 in Odometer and 0.03 at the provider"`
}

// providerDifference is a provider's price that differs from Odometer's price for the same customers.
type providerDifference struct {
	TheirDifference
	Customers int64 `json:"customers" doc:"Number of customers that the provider's price charges"`
}

// providerDifferences returns the provider's prices that charge the same customers as a price and differ from
// it.
func (s *server) providerDifferences(ctx context.Context, m metering.Meter, p billing.Price) ([]providerDifference, error) {
	prices, err := s.Store.Links.PricesInstead(ctx, principalOf(ctx).Tenant.ID, p, s.Now())
	if err != nil {
		return nil, err
	}
	shown := []providerDifference{}
	for _, theirs := range prices {
		if d, differs := billing.DifferenceOf(m, p.Terms, theirs); differs {
			shown = append(shown, providerDifference{TheirDifference{d.Theirs, d.First}, theirs.Customers})
		}
	}
	return shown, nil
}

func showDifference(d billing.PriceDifference) priceDifference {
	return priceDifference{d.MeterID.String(), d.MeterSlug, d.Ours, TheirDifference{d.Theirs, d.First}}
}

// priceID returns the id of a provider's own price, or "" if the saved price is charged.
func priceID(p billing.ProviderPrice) string {
	if p == nil {
		return ""
	}
	return p.ID()
}

// linking is the result of the price comparison before a customer is linked.
type linking struct {
	shown      *priceComparison // nil: there is nothing to compare
	refusal    error            // reason why the customer must not be linked
	connection metering.ConnectionID
	side       *billing.Side // nil: not read
	readAt     time.Time
}

// compareBefore reads the provider's data of a customer before the customer is linked, and compares the prices. It
// stores nothing. If the provider cannot be read, the comparison contains only a reason.
func (s *server) compareBefore(ctx context.Context, externalID string, atProvider *string) (l linking, err error) {
	if atProvider == nil || *atProvider == "" || !storable(externalID) || !storable(*atProvider) {
		return linking{}, nil
	}
	tenant := principalOf(ctx).Tenant.ID
	l.readAt = s.Now()
	known, err := s.Store.Links.Linking(ctx, tenant, externalID, *atProvider, l.readAt)
	if metering.CodeOf(err) == metering.CodeNoProvider || err == nil && known.Provider.Statements {
		return linking{}, nil
	}
	if err != nil {
		return linking{}, err
	}
	l.connection = known.Provider.ID
	if known.Side, err = s.readSide(ctx, tenant, known); err != nil {
		l.shown = &priceComparison{Reason: "not compared yet: " + reasonOf(err), Differences: []priceDifference{}}
		return l, nil
	}
	l.side, known.ReadAt = &known.Side, &l.readAt
	l.shown = showComparison(known)
	if !known.IsLinked {
		l.refusal = known.Validate("body.billing_provider_id")
	}
	return l, nil
}

// maxProviderReads is the maximum number of customers that are read from providers at the same time. A response of a
// provider can have several MiB.
const maxProviderReads = 4

// readSide reads a customer from the provider after it has waited for its turn.
func (s *server) readSide(ctx context.Context, tenant metering.TenantID, k ledger.Linking) (billing.Side, error) {
	if err := s.providerReads.WaitFor(ctx, tenant, compareTimeout); err != nil {
		return billing.Side{}, metering.Errorf(metering.CodeOverloaded, "other customers are being linked; the next sync reads the provider's prices").Because(err)
	}
	defer s.providerReads.Give(tenant, 1)
	p, err := s.Providers.Of(k.Provider.Kind)
	if err != nil {
		return billing.Side{}, err
	}
	secret, err := s.Keyring.Open(tenant, seal.ProviderSecret, k.Provider.SealedSecret)
	if err != nil {
		return billing.Side{}, metering.Errorf(metering.CodeProviderRefuse, "the provider's secret cannot be opened with this server's keys").Because(err)
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	return p.Read(ctx, providers.Credentials{Address: k.Provider.Address, Account: k.Provider.Account, Secret: string(secret)}, providers.Question{
		Customer: k.Customer, Meters: k.Wanted.Meters, Mapping: k.Provider.Mapping, Followed: k.Followed, Streams: k.Streams,
	})
}

// reasonOf returns the public text of an error.
func reasonOf(err error) string {
	var coded *metering.Error
	if errors.As(err, &coded) {
		return coded.Message
	}
	return "the provider could not be read"
}

// storeComparison stores the provider's data that compareBefore has read, after the customer has been linked.
func (s *server) storeComparison(ctx context.Context, c metering.CustomerID, l linking) {
	if l.side == nil {
		return
	}
	if err := s.Store.Links.Save(ctx, principalOf(ctx).Tenant.ID, c, l.connection, *l.side, l.readAt); err != nil {
		s.Log.WarnContext(ctx, "cannot save the provider's data of a customer; the next sync reads it again", "error", err)
	}
}

// savedComparison returns the price comparison of a linked customer, based on the last read from the provider. It
// returns nil if the customer is not linked or the tenant has no provider. It also returns nil for a provider
// without prices of its own.
func (s *server) savedComparison(ctx context.Context, c metering.Customer) (*priceComparison, error) {
	if c.BillingProviderID == nil || *c.BillingProviderID == "" {
		return nil, nil
	}
	known, err := s.Store.Links.Linked(ctx, c.TenantID, c, s.Now())
	if metering.CodeOf(err) == metering.CodeNoProvider || err == nil && known.Provider.Statements {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return showComparison(known), nil
}

func showComparison(k ledger.Linking) *priceComparison {
	shown := &priceComparison{Differences: []priceDifference{}}
	if k.ReadAt == nil {
		shown.Reason = "not compared yet: the next sync reads the provider's prices"
		return shown
	}
	at := k.ReadAt.UTC()
	shown.ComparedAt = &at
	for _, d := range k.Differences() {
		shown.Differences = append(shown.Differences, showDifference(d))
	}
	return shown
}
