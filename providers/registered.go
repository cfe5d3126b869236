package providers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Registry holds the providers by kind.
type Registry map[metering.ProviderKind]Provider

// Registered returns a registry of the providers.
func Registered(all ...Provider) Registry {
	r := make(Registry)
	for _, p := range all {
		r[p.Describe().Kind] = p
	}
	return r
}

// Of returns the provider of a kind.
func (r Registry) Of(kind metering.ProviderKind) (Provider, error) {
	p, ok := r[kind]
	if !ok {
		return nil, metering.Errorf(metering.CodeInternal, "no billing provider is called %s", kind)
	}
	return p, nil
}

// Kinds returns the kinds that tenants can choose, sorted.
func (r Registry) Kinds() []metering.ProviderKind {
	return slices.Sorted(maps.Keys(r))
}

// Frame encodes a report to a provider of the kind.
func (r Registry) Frame(kind metering.ProviderKind, m billing.Message) (billing.Framed, error) {
	p, err := r.Of(kind)
	if err != nil {
		return billing.Framed{}, err
	}
	return p.Frame(m)
}

// Price decodes the stored price of a provider.
func (r Registry) Price(terms []byte) (billing.ProviderPrice, error) {
	var kept struct {
		Provider metering.ProviderKind `json:"provider"`
	}
	if err := json.Unmarshal(terms, &kept); err != nil {
		return nil, fmt.Errorf("read a provider's price: %w", err)
	}
	p, err := r.Of(kept.Provider)
	if err != nil {
		return nil, err
	}
	prices, has := p.(Prices)
	if !has {
		return nil, metering.Errorf(metering.CodeInternal, "the billing provider %s has no prices", kept.Provider)
	}
	return prices.Price(terms)
}

// Timeout returns the longest timeout of all providers.
func (r Registry) Timeout() (longest time.Duration) {
	for _, p := range r {
		longest = max(longest, p.Describe().Timeout)
	}
	return longest
}

// Advised adds causes to a coded error: RetryLater if wait is positive, and OwnRefusal if own is set and
// the error is a refusal.
func Advised(err error, wait time.Duration, own bool) error {
	var coded *metering.Error
	if !errors.As(err, &coded) {
		return err
	}
	causes := []error{err}
	if wait > 0 {
		causes = append(causes, RetryLater{wait})
	}
	if own && coded.Code == metering.CodeProviderRefuse {
		causes = append(causes, OwnRefusal{})
	}
	if len(causes) == 1 {
		return err
	}
	return coded.Because(errors.Join(causes...))
}
