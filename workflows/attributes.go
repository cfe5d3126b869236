package workflows

import (
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/metering"
)

// Search attributes, by which operators find runs. Temporal stores them in plain text, so they
// contain only internal ids and constants.
var (
	tenantAttribute   = temporal.NewSearchAttributeKeyKeyword("OdometerTenant")
	customerAttribute = temporal.NewSearchAttributeKeyKeyword("OdometerCustomer")
	triggerAttribute  = temporal.NewSearchAttributeKeyKeyword("OdometerTrigger")
	periodAttribute   = temporal.NewSearchAttributeKeyKeyword("OdometerPeriod")  // the period's first day, UTC
	outcomeAttribute  = temporal.NewSearchAttributeKeyKeyword("OdometerOutcome") // of the sync or hold: running, paused, succeeded or failed
)

// SearchAttributes returns the search attributes to register, by name.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	types := make(map[string]enumspb.IndexedValueType)
	for _, key := range []temporal.SearchAttributeKeyKeyword{
		tenantAttribute, customerAttribute, triggerAttribute, periodAttribute, outcomeAttribute,
	} {
		types[key.GetName()] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	return types
}

// attributesOf returns the search attributes of a run: those given and the tenant.
func attributesOf(tenant metering.TenantID, more ...temporal.SearchAttributeUpdate) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(append(more, tenantAttribute.ValueSet(tenant.String()))...)
}

// Values of the outcome attribute.
const (
	running   = "running"
	paused    = "paused"
	succeeded = "succeeded"
	failed    = "failed"
)
