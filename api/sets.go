package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// set is a type of a few words.
type set[T any] interface {
	~string
	Values() []T
}

// oneOf is the schema of a set: a string, and which ones.
type oneOf[T set[T]] struct{}

func (oneOf[T]) Schema(huma.Registry) *huma.Schema {
	schema := &huma.Schema{Type: huma.TypeString}
	for _, value := range T("").Values() {
		schema.Enum = append(schema.Enum, string(value))
	}
	return schema
}

func describe[T set[T]](schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[oneOf[T]]())
}

// describeSets gives every field of these types its values in the document,
// which is also what requests are checked against.
func describeSets(schemas huma.Registry) {
	describe[billing.Component](schemas)
	describe[db.AttentionKind](schemas)
	describe[billing.Decision](schemas)
	describe[billing.HoldCode](schemas)
	describe[billing.HoldState](schemas)
	describe[billing.Kind](schemas)
	describe[billing.PeriodState](schemas)
	describe[billing.PriceSource](schemas)
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

// deliveredKind is also of a test.
type deliveredKind metering.MessageKind

func (deliveredKind) Values() (kinds []deliveredKind) {
	for _, kind := range metering.MessageKind("").Values() {
		kinds = append(kinds, deliveredKind(kind))
	}
	return append(kinds, deliveredKind(metering.MessageWebhookTest))
}

// lineKind is the kind of a report that has lines. An invoice action has none.
type lineKind billing.Kind

// Values returns the kinds.
func (lineKind) Values() []lineKind {
	return []lineKind{lineKind(billing.StatementReport), lineKind(billing.QuantityReport), lineKind(billing.ChargeReport)}
}

// resolvedState is what an operator finds out about a report.
type resolvedState billing.State

func (resolvedState) Values() []resolvedState {
	return []resolvedState{resolvedState(billing.Accepted), resolvedState(billing.Rejected)}
}

// stepName names a step of a working.
type stepName string

func (stepName) Values() (names []stepName) {
	for _, name := range billing.StepNames() {
		names = append(names, stepName(name))
	}
	return names
}

// givenRole is of a member who is not the owner: that role changes hands only
// by make-owner.
type givenRole metering.Role

func (givenRole) Values() (roles []givenRole) {
	for _, role := range metering.Role("").Values() {
		if role != metering.RoleOwner {
			roles = append(roles, givenRole(role))
		}
	}
	return roles
}

// meterStatus is of a meter version that is somebody's meter: none is retired.
type meterStatus metering.MeterVersionStatus

func (meterStatus) Values() []meterStatus {
	return []meterStatus{meterStatus(metering.Backfilling), meterStatus(metering.Complete)}
}
