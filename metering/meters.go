package metering

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
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

	UsageScale int32 // of its usage that a provider is told, where it adds up units
}

var slugPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// Validate checks what a client may choose.
func (m Meter) Validate() error {
	if err := validSlug(m.Slug); err != nil {
		return err
	}
	if err := validText("body.event_type", m.EventType); err != nil {
		return err
	}
	if err := ValidName(m.Name); err != nil {
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
	ID          MeterVersionID
	MeterID     MeterID
	EventType   string
	Aggregation Aggregation
	GroupBy     []string // property names, in the client's order
	Timezone    string   // IANA name; its local hours and months are the buckets
	Epoch       int64    // events with a lower epoch are the backfill's to count
	Status      MeterVersionStatus
	CountedFrom *time.Time // where its past begins; nil: with the first event
}

// Validate checks what a client may choose.
func (g MeterVersion) Validate() error {
	if !slices.Contains(g.Aggregation.Values(), g.Aggregation) {
		return Invalid("body.aggregation", "must be sum or count; other aggregations are not supported")
	}
	if len(g.GroupBy) > MaxGroupByKeys {
		return Invalid("body.group_by", "must name at most %d properties", MaxGroupByKeys)
	}
	for i, key := range g.GroupBy {
		at := fmt.Sprintf("body.group_by[%d]", i)
		if err := validText(at, key); err != nil {
			return err
		}
		if strings.HasPrefix(key, "$") {
			return Invalid(at, "must not begin with '$'")
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
		slices.Equal(g.GroupBy, o.GroupBy) && g.Timezone == o.Timezone
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

// GroupOf returns the group that an event with these properties (a JSON object,
// or nothing) belongs to. This is the only place that makes a group key, for
// ingest and backfill alike: SQL prints numbers differently. A missing
// property is null, a number is its plain decimal form, an object or array is
// its compact JSON text as a string.
func (g MeterVersion) GroupOf(properties json.RawMessage) (Group, error) {
	if len(g.GroupBy) == 0 {
		return NoGroup, nil
	}
	var all map[string]json.RawMessage
	if len(properties) > 0 {
		if err := json.Unmarshal(properties, &all); err != nil {
			return Group{}, fmt.Errorf("properties: %w", err)
		}
	}
	picked := make(map[string]json.RawMessage, len(g.GroupBy))
	for _, name := range g.GroupBy {
		value, err := groupValue(all[name])
		if err != nil {
			return Group{}, fmt.Errorf("property: %w", err)
		}
		picked[name] = value
	}
	key, err := json.Marshal(picked)
	if err != nil {
		return Group{}, fmt.Errorf("group key: %w", err)
	}
	return newGroup(key), nil
}

// Missing names the properties of group_by that an event of that group was sent
// without. One that was sent as null is not missing.
func (g MeterVersion) Missing(group Group, properties json.RawMessage) (names []string) {
	if !bytes.Contains(group.Key, []byte("null")) {
		return nil // as nearly always, without looking closer
	}
	var all map[string]json.RawMessage
	if len(properties) > 0 && json.Unmarshal(properties, &all) != nil {
		return nil
	}
	for _, name := range g.GroupBy {
		if _, sent := all[name]; !sent {
			names = append(names, name)
		}
	}
	return names
}

func groupValue(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	switch raw[0] {
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		return plainJSON(text), nil
	case '{', '[':
		var tree any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&tree); err != nil {
			return nil, err
		}
		return plainJSON(string(plainJSON(canonicalNumbers(tree)))), nil
	case 't', 'f', 'n':
		return raw, nil
	default:
		return json.RawMessage(canonicalNumber(string(raw))), nil
	}
}

// canonicalNumbers gives every number of a JSON tree its plain decimal form:
// jsonb rewrites 1e2 to 100, so the form as sent cannot be the key.
func canonicalNumbers(tree any) any {
	switch node := tree.(type) {
	case json.Number:
		return json.Number(canonicalNumber(node.String()))
	case []any:
		for i := range node {
			node[i] = canonicalNumbers(node[i])
		}
	case map[string]any:
		for name := range node {
			node[name] = canonicalNumbers(node[name])
		}
	}
	return tree
}
