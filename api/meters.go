package api

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

type meter struct {
	ID          string               `json:"id" example:"mtr_7"`
	Slug        string               `json:"slug"`
	EventType   string               `json:"event_type"`
	Name        string               `json:"name"`
	Unit        string               `json:"unit" doc:"Name of the unit of usage, for display"`
	Aggregation metering.Aggregation `json:"aggregation"`

	Selection

	GroupBy     []string    `json:"group_by" doc:"Event properties that usage is grouped by. See value_property for paths"`
	UsageScale  int32       `json:"usage_scale" minimum:"0" maximum:"6" doc:"Number of decimals of usage that is reported to a provider that adds up units, rounded half to even"`
	Status      meterStatus `json:"status" doc:"'backfilling' while earlier events are being counted. Meanwhile, usage is counted by the definition in 'current'. If 'current' is absent, reading usage returns 503"`
	CountedFrom *time.Time  `json:"counted_from" doc:"Start of complete usage. Events before this time were already deleted when counting began. Null if every event is counted"`
	CreatedAt   time.Time   `json:"created_at"`
	ArchivedAt  *time.Time  `json:"archived_at" doc:"Time at which the meter was archived and stopped counting new events. Null if the meter is not archived"`

	// Current is the definition in force. It is set while a changed definition is being backfilled.
	Current *counting `json:"current,omitempty"`

	// Backfill is the progress of counting the stored events.
	Backfill *backfill `json:"backfill,omitempty"`
}

type backfill struct {
	CountedDays int `json:"counted_days" doc:"Number of days with all events counted"`
	Days        int `json:"days" doc:"Number of days that can contain earlier events. 0 until a worker has started"`
}

// counting is the part of a meter's definition that determines how usage is counted.
type counting struct {
	Aggregation metering.Aggregation `json:"aggregation"`

	Selection

	GroupBy []string `json:"group_by" doc:"Properties that usage is grouped by until 'status' is 'complete'"`
}

// Selection defines which events a meter counts, and the property with their value.
type Selection struct {
	ValueProperty string        `json:"value_property" doc:"Property of events that is their value. Empty: 'value' of the event"`
	Filters       []MeterFilter `json:"filters" doc:"Conditions on properties. The meter counts the events that meet all of them"`
}

// MeterFilter is a metering.Filter in a response.
type MeterFilter struct {
	Property string                  `json:"property" doc:"Property of events"`
	Operator metering.FilterOperator `json:"operator" doc:"The comparison"`
	Values   []metering.FilterValue  `json:"values,omitempty" doc:"Strings, numbers or booleans. Absent for 'exists' and not_exists"`
}

// SentFilter is a MeterFilter in a request. Unknown fields are refused.
type SentFilter struct {
	Property string                  `json:"property" minLength:"1" maxLength:"255" doc:"Property of events. A dot separates the names of nested objects. A property with the whole name takes precedence"`
	Operator metering.FilterOperator `json:"operator" doc:"The comparison. A missing or null property meets only 'ne', not_in and not_exists. 'gt', 'gte', 'lt' and 'lte' accept only numbers"`
	Values   []metering.FilterValue  `json:"values,omitempty" maxItems:"100" doc:"Strings, numbers or booleans: none for 'exists' and not_exists, at least one for 'in' and not_in, and one for every other operator"`
}

func selectionOf(g metering.MeterVersion) Selection {
	s := Selection{g.ValueProperty, make([]MeterFilter, 0, len(g.Filters))}
	for _, f := range g.Filters {
		s.Filters = append(s.Filters, MeterFilter(f))
	}
	return s
}

func filtersOf(sent []SentFilter) []metering.Filter {
	filters := make([]metering.Filter, 0, len(sent))
	for _, f := range sent {
		filters = append(filters, metering.Filter(f))
	}
	return filters
}

// backfills contains the running backfills of a tenant. next maps each meter to the version that it will
// use after its backfill. progress maps each version to its progress.
type backfills struct {
	next     map[metering.MeterID]metering.MeterVersion
	progress map[metering.MeterVersionID]usage.BackfillProgress
}

func (s *server) registerMeters() {
	huma.Register(s.api, get("list-meters", "/v1/meters", MetersRead, "List meters",
		"Meters are listed in order of creation. Archived meters are included only with `archived=true`."), s.listMeters)
	huma.Register(s.api, created(post("create-meter", "/v1/meters", MetersWrite, "Create a meter",
		"The meter counts new events of its type immediately. A workflow counts the stored events. Until the workflow has finished, `status` is `backfilling` and "+
			"the meter's usage returns 503.\n\n"+
			"- A tenant has at most 1,000 meters, archived ones included. Beyond that the request returns 409.")), s.createMeter)
	huma.Register(s.api, get("get-meter", "/v1/meters/{slug}", MetersRead, "Get a meter",
		"While the meter is backfilling, `backfill` shows the progress."), s.getMeter)
	huma.Register(s.api, heavy(patch("update-meter", "/v1/meters/{slug}", MetersWrite, "Update a meter",
		"A new `aggregation`, `value_property`, `filters` or `group_by` counts the stored events again. Until these events are counted, reads and billing use the "+
			"previous definition, which `current` shows. Closed periods keep their totals.\n\n"+
			howToConfirm)), s.updateMeter)
}

func (s *server) backfills(ctx context.Context) (b backfills, err error) {
	tenant := principalOf(ctx).Tenant.ID
	if b.next, err = s.Store.Meters.Next(ctx, tenant); err != nil {
		return b, err
	}
	b.progress, err = s.Store.Backfills.Progress(ctx, tenant)
	return b, err
}

// show converts a meter to its JSON form. While a change is backfilled, the fields describe the next version, and
// Current describes the version in force.
func (b backfills) show(m metering.Meter) meter {
	current := m.Version
	if to, changes := b.next[m.ID]; changes {
		m.Version = to
	}
	shown := showMeter(m)
	if current.ID != m.Version.ID {
		shown.Current = &counting{current.Aggregation, selectionOf(current), append([]string{}, current.GroupBy...)}
	}
	if p, counts := b.progress[m.Version.ID]; counts {
		shown.Backfill = &backfill{p.Counted, p.Days}
	}
	return shown
}

func showMeter(m metering.Meter) meter {
	shown := meter{
		ID: m.ID.String(), Slug: m.Slug, EventType: m.EventType, Name: m.Name, Unit: m.Unit,
		Aggregation: m.Version.Aggregation, Selection: selectionOf(m.Version), GroupBy: append([]string{}, m.Version.GroupBy...),
		Status: meterStatus(m.Version.Status), CreatedAt: m.CreatedAt.UTC(), UsageScale: m.UsageScale, ArchivedAt: utcOrNil(m.ArchivedAt),
	}
	if from := m.Version.CountedFrom; from != nil {
		shown.CountedFrom = new(from.UTC())
	}
	return shown
}

type meterOutput struct{ Body meter }

type listMetersOutput struct{ Body List[meter] }

func (s *server) listMeters(ctx context.Context, in *struct {
	Paging
	Archivable
}) (*listMetersOutput, error) {
	var after metering.MeterID
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	meters, err := s.Store.Meters.List(ctx, principalOf(ctx).Tenant.ID, after, in.PageSize, in.Archived)
	if err != nil {
		return nil, err
	}
	counts, err := s.backfills(ctx)
	if err != nil {
		return nil, err
	}
	cursorOf := func(m metering.Meter) metering.MeterID { return m.ID }
	return &listMetersOutput{listOf(ctx, s, meters, counts.show, cursorOf)}, nil
}

// MeterDefinition defines how a new meter counts. CreateMeter and previews accept it.
type MeterDefinition struct {
	EventType   string               `json:"event_type" minLength:"1" maxLength:"255" doc:"Type of the events that the meter counts"`
	Aggregation metering.Aggregation `json:"aggregation,omitempty" default:"sum" doc:"'sum' adds the values of the events. 'count' adds 1 for each event"`

	ValueProperty string       `json:"value_property,omitempty" maxLength:"255" doc:"Property of events that is their value: a number, or a string that is a number, which is rounded half to even to 12 decimals. A dot separates the names of nested objects, such as usage.total_tokens; a property with the whole name takes precedence. At most 5 names. Empty: 'value' of the event"`
	Filters       []SentFilter `json:"filters,omitempty" maxItems:"10" doc:"Conditions on properties. The meter counts the events that meet all of them"`

	GroupBy []string `json:"group_by,omitempty" maxItems:"5" maxLength:"255" doc:"Event properties to group usage by. See value_property for paths"`
}

func (d MeterDefinition) version() metering.MeterVersion {
	return metering.MeterVersion{
		EventType: d.EventType, Aggregation: d.Aggregation, ValueProperty: d.ValueProperty, Filters: filtersOf(d.Filters), GroupBy: d.GroupBy,
	}
}

type createMeterInput struct {
	Repeatable
	Body struct {
		Slug string `json:"slug" minLength:"1" maxLength:"64" pattern:"^[a-z0-9][a-z0-9_-]*$"`
		Name string `json:"name,omitempty" maxLength:"255"`
		Unit string `json:"unit,omitempty" maxLength:"64" doc:"Name of the unit of usage, for display, such as tokens"`

		MeterDefinition

		UsageScale int32 `json:"usage_scale,omitempty" minimum:"0" maximum:"6" default:"0" doc:"Number of decimals of usage that is reported to Stripe's billing meters, rounded half to even. Needs decimals enabled for your Stripe account. Usage records always contain whole units. Statements to a webhook contain exact usage"`
	}
}

func (s *server) createMeter(ctx context.Context, in *createMeterInput) (*meterOutput, error) {
	who := principalOf(ctx)
	var m metering.Meter
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-meter", in.Body, func(within db.Creators) (_ meter, err error) {
		m, err = within.Meters.Create(ctx, who.Tenant.ID, who.Actor, metering.Meter{
			Slug: in.Body.Slug, EventType: in.Body.EventType, Name: in.Body.Name, Unit: in.Body.Unit, UsageScale: in.Body.UsageScale,
			Version: in.Body.version(),
		})
		return showMeter(m), err
	})
	if err != nil {
		return nil, err
	}
	if !repeated && m.Version.Status == metering.Backfilling {
		s.startBackfill(ctx, m.Version.ID)
	}
	return &meterOutput{shown}, nil
}

// startBackfill starts the workflow of a backfill. If Temporal does not respond, a worker starts the workflow
// later.
func (s *server) startBackfill(ctx context.Context, version metering.MeterVersionID) {
	if err := workflows.StartBackfillMeter(ctx, s.Temporal, principalOf(ctx).Tenant.ID, version); err != nil {
		s.Log.WarnContext(ctx, "the API could not start the backfill; the worker starts it", "meter_version", version, "error", err)
	}
}

type meterSlug struct {
	Slug string `path:"slug" maxLength:"64"`
}

func (s *server) getMeter(ctx context.Context, in *meterSlug) (*meterOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	counts, err := s.backfills(ctx)
	if err != nil {
		return nil, err
	}
	return &meterOutput{counts.show(m)}, nil
}

// meter returns the tenant's meter with this slug.
func (s *server) meter(ctx context.Context, slug string) (metering.Meter, error) {
	if !storable(slug) {
		return metering.Meter{}, metering.Errorf(metering.CodeNotFound, "there is no meter with this slug")
	}
	return s.Store.Meters.Get(ctx, principalOf(ctx).Tenant.ID, slug)
}

// storable reports whether the database can store a text: UTF-8 without NUL. No stored value equals a text that
// is not storable.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// MeterChange contains the fields of a meter that a request changes. UpdateMeter and previews accept it.
type MeterChange struct {
	Name        *string               `json:"name,omitempty" maxLength:"255"`
	Unit        *string               `json:"unit,omitempty" maxLength:"64" doc:"Name of the unit of usage, for display"`
	Aggregation *metering.Aggregation `json:"aggregation,omitempty"`

	ValueProperty *string       `json:"value_property,omitempty" maxLength:"255" doc:"Property of events that is their value. Empty: 'value' of the event"`
	Filters       *[]SentFilter `json:"filters,omitempty" maxItems:"10" doc:"Conditions on properties, which replace the saved conditions. The meter counts the events that meet all of them"`

	GroupBy    *[]string `json:"group_by,omitempty" maxItems:"5" maxLength:"255"`
	UsageScale *int32    `json:"usage_scale,omitempty" minimum:"0" maximum:"6" doc:"Number of decimals of reported usage. A change applies to open periods and recounts nothing"`
}

func (c MeterChange) change() catalog.MeterChange {
	change := catalog.MeterChange{
		Name: c.Name, Unit: c.Unit, Aggregation: c.Aggregation, ValueProperty: c.ValueProperty, GroupBy: c.GroupBy, UsageScale: c.UsageScale,
	}
	if c.Filters != nil {
		change.Filters = new(filtersOf(*c.Filters))
	}
	return change
}

type updateMeterInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body struct {
		MeterChange
		Confirm
	}
}

// meterWrite identifies the operation and the meter in the field change of a catalogWrite.
type meterWrite struct {
	Operation string
	Meter     metering.MeterID
}

// updateMeter changes a meter. If the change affects counting, it applies after the stored events have been
// counted. Until then, usage is read under the previous definition.
func (s *server) updateMeter(ctx context.Context, in *updateMeterInput) (*meterOutput, error) {
	who := principalOf(ctx)
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	change := in.Body.change()
	var backfilling *metering.MeterVersion
	err = s.writeCatalog(ctx, catalogWrite{
		change: struct {
			meterWrite
			Change catalog.MeterChange
		}{meterWrite{"update-meter", m.ID}, change},
		subject: "The meter's definition", confirm: in.Body.Token,
		impact: func(now time.Time) (ledger.Impact, error) {
			return s.Store.Ledger.MeterImpact(ctx, who.Tenant.ID, in.Slug, change, now)
		},
		write: func(within db.Catalog) (err error) {
			m, backfilling, err = within.Meters.Update(ctx, who.Tenant.ID, who.Actor, in.Slug, change)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if backfilling != nil {
		s.startBackfill(ctx, backfilling.ID)
	}
	counts, err := s.backfills(ctx)
	if err != nil {
		return nil, err
	}
	return &meterOutput{counts.show(m)}, nil
}
