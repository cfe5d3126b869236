package metering

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Bounds of the catalog.
const (
	MaxMeters             = 1_000 // per tenant, including archived ones
	MaxMetersPerEventType = 20
	MaxGroupsPerMeter     = 10_000  // distinct groups of one meter version; later groups are counted in OtherGroup
	MaxGroupKeyBytes      = 1 << 10 // of a group's key; groups with longer keys are counted in OtherGroup
	MaxGroupByKeys        = 5
	MaxUsageScale         = 6
	MaxDefinitionBytes    = 4 << 20 // of the filters of a tenant's meters as JSON
	MaxSlugBytes          = 64
	maxUnit               = 64
)

// Aggregation is the way in which a meter computes usage from events.
type Aggregation string

const (
	Sum   Aggregation = "sum"   // the sum of the events' values
	Count Aggregation = "count" // the number of events
)

// Values returns all aggregations.
func (Aggregation) Values() []Aggregation {
	return []Aggregation{Sum, Count}
}

// Meter is a quantity that the tenant counts. Its Version defines how events are counted.
type Meter struct {
	ID         MeterID
	Slug       string
	EventType  string
	Name       string
	CreatedAt  time.Time
	ArchivedAt time.Time    // zero: not archived; otherwise events received since then are not counted
	Version    MeterVersion // the version that reads and billing use, except while its status is Backfilling

	Unit       string // display name of the unit of usage
	UsageScale int32  // decimals of the quantities in reports to a provider that totals quantities
}

var slugPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// Validate returns an error if a field that a client can set is not valid.
func (m Meter) Validate() error {
	if err := validSlug(m.Slug); err != nil {
		return err
	}
	if err := ValidEventType(m.EventType); err != nil {
		return err
	}
	if err := ValidName(m.Name); err != nil {
		return err
	}
	if err := validDisplay("body.unit", m.Unit, maxUnit); err != nil {
		return err
	}
	if m.UsageScale < 0 || m.UsageScale > MaxUsageScale {
		return Invalid("body.usage_scale", "must be 0 to %d", MaxUsageScale)
	}
	return m.Version.Validate()
}

func validSlug(slug string) error {
	if len(slug) > MaxSlugBytes || !slugPattern.MatchString(slug) {
		return Invalid("body.slug", "must be 1 to %d characters of a-z, 0-9, '_' and '-', and begin with a letter or digit", MaxSlugBytes)
	}
	return nil
}

// ValidEventType returns an error if the text cannot be the event type of a meter.
func ValidEventType(text string) error { return validText("body.event_type", text) }

// MeterVersionStatus is the status of a meter version.
type MeterVersionStatus string

const (
	Backfilling MeterVersionStatus = "backfilling" // new events are counted at ingest; earlier events are still being counted
	Complete    MeterVersionStatus = "complete"    // every event is counted; reads and billing may use it
	Retired     MeterVersionStatus = "retired"     // replaced by another version; it counts no more events
)

// Values returns all statuses.
func (MeterVersionStatus) Values() []MeterVersionStatus {
	return []MeterVersionStatus{Backfilling, Complete, Retired}
}

// MeterVersion defines how the events of a meter are counted. A change of the definition creates a new
// version, so a total never mixes two definitions.
type MeterVersion struct {
	ID            MeterVersionID
	MeterID       MeterID
	EventType     string
	Aggregation   Aggregation
	ValueProperty string   // path into properties of the value; "": the event's own value
	Filters       []Filter // an event is counted if it meets all of them
	GroupBy       []string // paths into properties, in the client's order
	Timezone      string   // IANA name; usage is stored by local hour and month
	Epoch         int64    // events with a lower epoch are counted by the backfill, not at ingest
	Status        MeterVersionStatus
	CountedFrom   *time.Time // the start of the version's totals; nil: the first event
}

// Validate returns an error if a field that a client can set is not valid.
func (g MeterVersion) Validate() error {
	if !slices.Contains(g.Aggregation.Values(), g.Aggregation) {
		return Invalid("body.aggregation", "must be sum or count; other aggregations are not supported")
	}
	if g.ValueProperty != "" {
		if err := ValidPath("body.value_property", g.ValueProperty); err != nil {
			return err
		}
	}
	if len(g.Filters) > MaxFiltersPerMeter {
		return Invalid("body.filters", "must have at most %d filters; use the operator in for several values of one property", MaxFiltersPerMeter)
	}
	for i, filter := range g.Filters {
		if err := filter.validate(fmt.Sprintf("body.filters[%d]", i)); err != nil {
			return err
		}
	}
	if n := g.FilterBytes(); n > MaxFilterBytes {
		return Invalid("body.filters", "must be shorter: the filters have %d bytes as JSON, and at most %d are allowed; use fewer or shorter values", n, MaxFilterBytes)
	}
	if len(g.GroupBy) > MaxGroupByKeys {
		return Invalid("body.group_by", "must name at most %d properties", MaxGroupByKeys)
	}
	for i, key := range g.GroupBy {
		at := fmt.Sprintf("body.group_by[%d]", i)
		if err := ValidPath(at, key); err != nil {
			return err
		}
		if slices.Contains(g.GroupBy[:i], key) {
			return Invalid(at, "repeats an earlier property; name each property once")
		}
	}
	return nil
}

// FilterBytes returns the size of the filters as JSON.
func (g MeterVersion) FilterBytes() int {
	text, err := json.Marshal(g.Filters)
	if err != nil {
		panic(err) // unreachable: the fields of Filter always encode as JSON
	}
	return len(text)
}

// SameCounting reports whether two meter versions count every event in the same way.
func (g MeterVersion) SameCounting(o MeterVersion) bool {
	return g.EventType == o.EventType && g.Aggregation == o.Aggregation &&
		slices.Equal(g.GroupBy, o.GroupBy) && g.Timezone == o.Timezone && g.SameSelection(o)
}

// SameSelection reports whether two meter versions count the same events with the same values.
func (g MeterVersion) SameSelection(o MeterVersion) bool {
	return g.ValueProperty == o.ValueProperty && slices.EqualFunc(g.Filters, o.Filters, Filter.equal)
}

// Usage returns the total that the aggregation uses: the sum or the count of a bucket.
func (a Aggregation) Usage(sum Decimal, count int64) Decimal {
	if a == Count {
		return Whole(count)
	}
	return sum
}

// GroupID identifies a group within a meter version: a hash of its canonical key.
type GroupID [16]byte

// Group is one combination of the values of a meter version's group_by properties.
type Group struct {
	ID  GroupID
	Key json.RawMessage // {"model":"gpt","region":null}, keys sorted
}

// NoGroup is the one group of a meter without group_by.
var NoGroup = newGroup([]byte(`{}`))

// OtherGroup counts the events of all groups beyond MaxGroupsPerMeter, and of groups with a key beyond
// MaxGroupKeyBytes, so that totals stay exact.
var OtherGroup = newGroup([]byte(`{"` + OtherProperty + `":true}`))

func newGroup(key []byte) Group {
	hash := sha256.Sum256(key)
	return Group{GroupID(hash[:16]), key}
}

// By returns the group that contains g if events are grouped by these properties only. For OtherGroup and
// at least one property it returns OtherGroup, because the properties of its events are not known.
func (g Group) By(properties []string) (Group, error) {
	if g.ID == OtherGroup.ID && len(properties) > 0 {
		return g, nil
	}
	return MeterVersion{GroupBy: properties}.GroupOf(g.Key)
}
