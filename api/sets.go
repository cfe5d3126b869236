package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// set is a string type with a fixed set of values.
type set[T any] interface {
	~string
	Values() []T
}

// oneOf is the JSON schema of a set: a string with an enum.
type oneOf[T set[T]] struct{}

func (oneOf[T]) Schema(huma.Registry) *huma.Schema {
	schema := &huma.Schema{Type: huma.TypeString}
	for _, value := range T("").Values() {
		schema.Enum = append(schema.Enum, string(value))
	}
	return schema
}

// describe registers the schema with an enum for the type T.
func describe[T set[T]](schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[oneOf[T]]())
}

// describeSets registers a schema with an enum for each type with a fixed set of values. Requests are
// validated against these schemas.
func describeSets(schemas huma.Registry) {
	describe[billing.Component](schemas)
	describe[db.AttentionKind](schemas)
	describe[billing.Decision](schemas)
	describe[billing.ExclusionCode](schemas)
	describe[billing.HoldCode](schemas)
	describe[billing.HoldState](schemas)
	describe[billing.Kind](schemas)
	describe[billing.PeriodState](schemas)
	describe[billing.PriceSource](schemas)
	describe[billing.ReconciliationReason](schemas)
	describe[billing.ReconciliationState](schemas)
	describe[billing.State](schemas)
	describe[metering.Aggregation](schemas)
	describe[metering.AlertType](schemas)
	describe[metering.Bills](schemas)
	describe[metering.DeliveryStatus](schemas)
	describe[metering.DisabledBecause](schemas)
	describe[metering.FilterOperator](schemas)
	describe[metering.Granularity](schemas)
	describe[metering.KeysChoice](schemas)
	describe[metering.LatePolicy](schemas)
	describe[metering.ConflictPolicy](schemas)
	describe[billing.UnratedReason](schemas)
	describe[unratedState](schemas)
	describe[metering.MessageKind](schemas)
	describe[metering.QuotaMode](schemas)
	describe[billing.Model](schemas)
	describe[metering.QuotaPeriod](schemas)
	describe[metering.Role](schemas)
	describe[metering.Scope](schemas)
	describe[metering.Signatures](schemas)
	describe[metering.SyncStatus](schemas)
	describe[metering.Verdict](schemas)
	describe[metering.Trigger](schemas)
	describe[deliveredKind](schemas)
	describe[lineKind](schemas)
	describe[resolvedState](schemas)
	describe[stepName](schemas)
	describe[givenRole](schemas)
	describe[meterStatus](schemas)
	describe[uncountedRule](schemas)
}

// deliveredKind is the kind of a delivered message, webhook.test included.
type deliveredKind metering.MessageKind

func (deliveredKind) Values() (kinds []deliveredKind) {
	for _, kind := range metering.MessageKind("").Values() {
		kinds = append(kinds, deliveredKind(kind))
	}
	return append(kinds, deliveredKind(metering.MessageWebhookTest))
}

// lineKind is the kind of a report with lines. An invoice action has no lines.
type lineKind billing.Kind

// Values returns the kinds.
func (lineKind) Values() []lineKind {
	return []lineKind{lineKind(billing.StatementReport), lineKind(billing.QuantityReport), lineKind(billing.ChargeReport)}
}

// resolvedState is a state that an operator can set for a report.
type resolvedState billing.State

func (resolvedState) Values() []resolvedState {
	return []resolvedState{resolvedState(billing.Accepted), resolvedState(billing.Rejected)}
}

// stepName is the name of a step in a breakdown.
type stepName string

func (stepName) Values() (names []stepName) {
	for _, name := range billing.StepNames() {
		names = append(names, stepName(name))
	}
	return names
}

// givenRole is a role that a caller can give to a member. The role owner is excluded, because only the
// operation make-owner transfers it.
type givenRole metering.Role

func (givenRole) Values() (roles []givenRole) {
	for _, role := range metering.Role("").Values() {
		if role != metering.RoleOwner {
			roles = append(roles, givenRole(role))
		}
	}
	return roles
}

// meterStatus is the status of the meter version that a response shows. A response never shows a retired
// version.
type meterStatus metering.MeterVersionStatus

func (meterStatus) Values() []meterStatus {
	return []meterStatus{meterStatus(metering.Backfilling), meterStatus(metering.Complete)}
}
