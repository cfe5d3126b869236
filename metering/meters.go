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
	MaxMeters             = 1_000 // of a tenant, archived ones included
	MaxMetersPerEventType = 20
	MaxGroupsPerMeter     = 10_000  // distinct groups of one meter version; later ones count in OtherGroup
	MaxGroupKeyBytes      = 1 << 10 // of a group's key; groups with longer ones count in OtherGroup
	MaxGroupByKeys        = 5
	MaxUsageScale         = 6
	maxSlugBytes          = 64
	maxUnit               = 64
)

// Aggregation is how a meter turns events into usage.
type Aggregation string

const (
	Sum   Aggregation = "sum"   // the events' values, added
	Count Aggregation = "count" // the number of events
)

// Values are all aggregations.
func (Aggregation) Values() []Aggregation {
	return []Aggregation{Sum, Count}
}

// Meter names something that is counted. How it is counted is its Version.
type Meter struct {
	ID         MeterID
	Slug       string
	EventType  string
	Name       string
	CreatedAt  time.Time
	ArchivedAt time.Time    // zero: it is not archived; else it counts no event that came since
	Version    MeterVersion // the one that reads and billing use; while Backfilling, nobody reads it

	Unit       string // of its usage, for people to read
	UsageScale int32  // of its usage that a provider is told, where it adds up units
}

var slugPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// Validate checks what a client may choose.
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
	if len(slug) > maxSlugBytes || !slugPattern.MatchString(slug) {
		return Invalid("body.slug", "must be 1 to %d characters of a-z, 0-9, '_' and '-', and begin with a letter or digit", maxSlugBytes)
	}
	return nil
}

// ValidEventType returns the rule that the event type of a meter breaks.
func ValidEventType(text string) error { return validText("body.event_type", text) }

// MeterVersionStatus is where a meter version stands in its life.
type MeterVersionStatus string

const (
	Backfilling MeterVersionStatus = "backfilling" // ingest feeds it, its past is still being counted
	Complete    MeterVersionStatus = "complete"    // every event is counted; reads and billing may use it
	Retired     MeterVersionStatus = "retired"     // another took its place; nothing feeds it
)

// Values are all that a meter version may be.
func (MeterVersionStatus) Values() []MeterVersionStatus {
	return []MeterVersionStatus{Backfilling, Complete, Retired}
}

// MeterVersion is one way of counting a meter. Any change to it makes a new
// one; totals never mix two ways of counting.
type MeterVersion struct {
	ID            MeterVersionID
	MeterID       MeterID
	EventType     string
	Aggregation   Aggregation
	ValueProperty string   // path into properties of the value; "": the event's own value
	Filters       []Filter // an event is counted if it meets all of them
	GroupBy       []string // paths into properties, in the client's order
	Timezone      string   // IANA name; its local hours and months are the buckets
	Epoch         int64    // events with a lower epoch are the backfill's to count
	Status        MeterVersionStatus
	CountedFrom   *time.Time // where its past begins; nil: with the first event
}

// Validate checks what a client may choose.
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

// SameCounting says whether two meter versions would count every event alike.
func (g MeterVersion) SameCounting(o MeterVersion) bool {
	return g.EventType == o.EventType && g.Aggregation == o.Aggregation &&
		slices.Equal(g.GroupBy, o.GroupBy) && g.Timezone == o.Timezone && g.SameSelection(o)
}

// SameSelection reports whether two meter versions count the same events with the same values.
func (g MeterVersion) SameSelection(o MeterVersion) bool {
	return g.ValueProperty == o.ValueProperty && slices.EqualFunc(g.Filters, o.Filters, Filter.equal)
}

// Usage picks the figure of a bucket that the meter's aggregation asks for.
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

// OtherGroup takes the events of every group beyond MaxGroupsPerMeter, and of those with
// a key beyond MaxGroupKeyBytes, so that totals stay exact.
var OtherGroup = newGroup([]byte(`{"` + OtherProperty + `":true}`))

func newGroup(key []byte) Group {
	hash := sha256.Sum256(key)
	return Group{GroupID(hash[:16]), key}
}

// By is the group of one that differs from others of its meter version in these of its
// properties alone. What OtherGroup's events have of them is not known.
func (g Group) By(properties []string) (Group, error) {
	if g.ID == OtherGroup.ID && len(properties) > 0 {
		return g, nil
	}
	return MeterVersion{GroupBy: properties}.GroupOf(g.Key)
}
