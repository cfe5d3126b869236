package workflows

import (
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/metering"
)

// Search attributes, by which operators find runs. They are plain text
// everywhere: internal ids and words of ours only.
var (
	tenantAttribute   = temporal.NewSearchAttributeKeyKeyword("OdometerTenant")
	customerAttribute = temporal.NewSearchAttributeKeyKeyword("OdometerCustomer")
	triggerAttribute  = temporal.NewSearchAttributeKeyKeyword("OdometerTrigger")
	periodAttribute   = temporal.NewSearchAttributeKeyKeyword("OdometerPeriod")  // its first day, UTC
	outcomeAttribute  = temporal.NewSearchAttributeKeyKeyword("OdometerOutcome") // of a sync, or of the one that an event has asked for: running, paused, succeeded, failed
)

// SearchAttributes is what has to be registered for them.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	types := make(map[string]enumspb.IndexedValueType)
	for _, key := range []temporal.SearchAttributeKeyKeyword{
		tenantAttribute, customerAttribute, triggerAttribute, periodAttribute, outcomeAttribute,
	} {
		types[key.GetName()] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	return types
}

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
