package metering

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Bounds of a tenant's plans and prices.
const (
	MaxPlans  = 1_000  // including archived plans
	MaxPrices = 20_000 // price versions of all meters and plans, except withdrawn versions

	MaxPricesOfCustomer = 1_000 // versions of a customer's own prices, except withdrawn versions

	MaxPriceBytes           = 8 << 20   // terms as JSON of the versions that MaxPrices counts
	MaxPriceBytesOfCustomer = 256 << 10 // terms as JSON of the versions that MaxPricesOfCustomer counts
)

// Plan is an entry of the tenant's catalog. For customers with the plan, its prices replace the meters' own
// prices.
type Plan struct {
	ID         PlanID
	Slug       string
	Name       string
	CreatedAt  time.Time
	ArchivedAt time.Time       // zero: not archived
	Features   json.RawMessage // object of key to string, number or boolean, which only clients interpret
}

// Validate returns an error if a field that a client can set is not valid.
func (p Plan) Validate() error {
	if err := validSlug(p.Slug); err != nil {
		return err
	}
	return ValidName(p.Name)
}

// Bounds of a plan's features.
const (
	MaxFeatures     = 100
	maxFeatureBytes = 1 << 10 // of a value as JSON
)

// ParseFeatures validates the features of a plan, and returns them as JSON with sorted keys.
func ParseFeatures(object json.RawMessage) (json.RawMessage, error) {
	var features map[string]json.RawMessage
	if err := json.Unmarshal(object, &features); err != nil || features == nil {
		return nil, Invalid("body.features", "must be an object")
	}
	if len(features) > MaxFeatures {
		return nil, Invalid("body.features", "must have at most %d features", MaxFeatures)
	}
	for _, key := range slices.Sorted(maps.Keys(features)) {
		if value := features[key]; len(value) > maxFeatureBytes || bytes.ContainsAny(value[:1], "{[n") {
			return nil, Invalid("body.features."+ShortName(key), "must be a string, a number or a boolean of at most %d bytes as JSON", maxFeatureBytes)
		}
	}
	text, err := json.Marshal(features)
	if err != nil {
		return nil, err
	}
	if rejection := judgeProperties(text); rejection != nil {
		return nil, Invalid("body.features", "%s", rejection.Message)
	}
	return text, nil
}
