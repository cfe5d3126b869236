package ledger

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// ReadPrice decodes the stored terms of a provider's price.
type ReadPrice func(terms []byte) (billing.ProviderPrice, error)

// providerPrices are the providers' prices by the hash of their terms, in hexadecimal. Stored
// destinations and periods refer to a price by this hash.
type providerPrices map[string]billing.ProviderPrice

func hashOf(p billing.ProviderPrice) string {
	hash := billing.PriceHash(p)
	return hex.EncodeToString(hash[:])
}

// named returns the price with a hash. Returns nil if the hash is empty, and an error if the price is
// missing.
func (p providerPrices) named(hash string) (billing.ProviderPrice, error) {
	price := p[hash]
	if price == nil && hash != "" {
		return nil, fmt.Errorf("the terms %s of a price are missing", hash)
	}
	return price, nil
}

// period returns a stored billing period with its prices.
func (p providerPrices) period(s storedPeriod, read ReadPrice) (billing.Period, error) {
	if err := p.add(s.terms, read); err != nil {
		return billing.Period{}, err
	}
	for meter, hash := range s.prices {
		price, err := p.named(hash)
		if err != nil {
			return billing.Period{}, err
		}
		if s.Subscription.Prices == nil {
			s.Subscription.Prices = make(map[metering.MeterID]billing.ProviderPrice)
		}
		s.Subscription.Prices[meter] = price
	}
	return s.Period, nil
}

// storedDestination is a destination with the hash of its price.
type storedDestination struct {
	billing.Destination
	Terms string `json:"terms,omitempty"`
}

func storedDestinations(all []billing.Destination) []storedDestination {
	stored := make([]storedDestination, len(all))
	for i, d := range all {
		stored[i].Destination = d
		if d.Price != nil {
			stored[i].Terms = hashOf(d.Price)
		}
	}
	return stored
}

// destinations returns stored destinations with their prices.
func (p providerPrices) destinations(stored []storedDestination, terms keptTerms, read ReadPrice) (all []billing.Destination, err error) {
	if err := p.add(terms, read); err != nil {
		return nil, err
	}
	for _, s := range stored {
		if s.Price, err = p.named(s.Terms); err != nil {
			return nil, err
		}
		all = append(all, s.Destination)
	}
	return all, nil
}

// namedTerms returns the SQL of a JSON object of providers' price terms, keyed by hash. hashes is the SQL query
// that selects the hashes. The object is null if no terms are found.
func namedTerms(tenant, hashes string) string {
	return `(
	  select jsonb_object_agg(encode(m.hash, 'hex'), m.terms)
	  from price_terms m
	  where m.tenant_id = ` + tenant + `
	    and m.schema = 2
	    and m.hash in (` + hashes + `))`
}

// hashesInDestinations is the SQL query of the price hashes in a row l of billing_links. hashesInPeriod is that
// of a billing period p.
const (
	hashesInDestinations = `
	    select decode(d->>'terms', 'hex')
	    from jsonb_array_elements(l.destinations) d
	    union all
	    select decode(d->>'terms', 'hex')
	    from jsonb_array_elements(l.others) o
	    cross join lateral jsonb_array_elements(o->'destinations') d`
	hashesInPeriod = `select decode(e.hash, 'hex') from jsonb_each_text(p.prices) e (meter, hash)`
)

// keptTerms holds stored terms of providers' prices by their hash, in hexadecimal.
type keptTerms map[string]json.RawMessage

// add decodes the stored terms of the prices that p lacks, and adds these prices.
func (p providerPrices) add(kept keptTerms, read ReadPrice) (err error) {
	for hash, terms := range kept {
		if p[hash] != nil {
			continue
		}
		if p[hash], err = read(terms); err != nil {
			return err
		}
	}
	return nil
}

// distinctTerms returns the distinct prices of the destinations: their hashes and, in the same order,
// their terms.
func distinctTerms(all []billing.Destination) (hashes [][]byte, terms []string) {
	distinct := make(map[string]billing.ProviderPrice)
	for _, d := range all {
		if d.Price != nil {
			distinct[hashOf(d.Price)] = d.Price
		}
	}
	for _, name := range slices.Sorted(maps.Keys(distinct)) {
		hash := billing.PriceHash(distinct[name])
		hashes, terms = append(hashes, hash[:]), append(terms, string(distinct[name].JSON()))
	}
	return hashes, terms
}

// termsHash returns the hash of a provider's price as it is stored. Returns nil if p is nil, because our price
// is charged then.
func termsHash(p billing.ProviderPrice) []byte {
	if p == nil {
		return nil
	}
	hash := billing.PriceHash(p)
	return hash[:]
}

// hashesOf returns the hashes of the prices of a period's meters.
func hashesOf(prices map[metering.MeterID]billing.ProviderPrice) map[metering.MeterID]string {
	hashes := make(map[metering.MeterID]string, len(prices))
	for meter, price := range prices {
		hashes[meter] = hashOf(price)
	}
	return hashes
}
