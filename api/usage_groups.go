package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// showGroups returns the groups of a page with their windows, subtotals and filters.
func showGroups(page usage.WindowPage) ([]usageGroup, error) {
	subtotals := make(map[metering.GroupID]metering.Decimal, len(page.Groups))
	for _, g := range page.Groups {
		subtotals[g.GroupID] = g.Total
	}
	groups := []usageGroup{}
	for i, w := range page.Windows {
		if i == 0 || w.GroupID != page.Windows[i-1].GroupID {
			filter, err := metering.FilterOf(w.GroupKey)
			if err != nil {
				return nil, fmt.Errorf("group key: %w", err)
			}
			groups = append(groups, usageGroup{GroupKey: w.GroupKey, Subtotal: subtotals[w.GroupID], Filter: filter})
		}
		g := &groups[len(groups)-1]
		g.Windows = append(g.Windows, usageWindow{w.Start.UTC(), w.End.UTC(), w.Value, w.LateValue, w.Final})
	}
	return groups, nil
}

// maxFilters is the maximum number of values in all filters of a request together.
const maxFilters = 100

// groupFilters reads the query parameters filter.<property>=value.
func groupFilters(ctx context.Context, m metering.Meter) (map[string][]json.RawMessage, error) {
	filters := make(map[string][]json.RawMessage)
	given := 0
	query := exchangeOf(ctx).request.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		property, ok := strings.CutPrefix(name, metering.FilterPrefix)
		if !ok {
			continue
		}
		location := shortened("query." + strings.ToValidUTF8(name, "�"))
		other := property == metering.OtherProperty && len(m.Version.GroupBy) > 0
		if !other && !slices.Contains(m.Version.GroupBy, property) {
			return nil, metering.Invalid(location, "must be a property that the meter groups by; %s", availableProperties(m))
		}
		if given += len(values); given > maxFilters {
			return nil, metering.Invalid(location, "must have at most %d values together with the other filters", maxFilters)
		}
		for _, value := range values {
			if !storable(value) {
				return nil, metering.Invalid(location, "must be UTF-8 without NUL")
			}
			if other && value != "true" {
				return nil, metering.Invalid(location, "must be true, the only value of this group")
			}
			filters[property] = append(filters[property], metering.ParseGroupValue(value))
		}
	}
	if _, other := filters[metering.OtherProperty]; other && len(filters) > 1 {
		return nil, metering.Invalid("query."+metering.FilterPrefix+metering.OtherProperty, "must be the only filter, because the property values of its usage are unknown")
	}
	return filters, nil
}

// showGaps converts the gaps of group filters for a response, with warnings about them.
func showGaps(gaps usage.FilterGaps) FilterGaps {
	return FilterGaps{gaps.Other, filterWarnings(gaps)}
}

// filterWarnings returns warnings about usage that the group filters may have missed.
func filterWarnings(gaps usage.FilterGaps) (warnings []string) {
	if gaps.Other != nil {
		warnings = append(warnings, "total excludes usage of the group $other (other_total), some of which can match the group filters")
	}
	if gaps.Alike {
		warnings = append(warnings, "a group with the text of a filter as another JSON type is excluded. A number, true, false or null selects that value. A text in double quotes selects the string")
	}
	return warnings
}

// readGroupBy reads the query parameter group_by. It returns nil if the parameter is absent.
func readGroupBy(ctx context.Context, m metering.Meter) (properties []string, err error) {
	query := exchangeOf(ctx).request.URL.Query()
	if !query.Has("group_by") {
		return nil, nil
	}
	given := query["group_by"]
	if len(given) == 1 && given[0] == "" {
		return []string{}, nil
	}
	for _, name := range splitNames(given, m.Version.GroupBy) {
		if !slices.Contains(m.Version.GroupBy, name) {
			return nil, metering.Invalid("query.group_by", "must be properties that the meter groups by; %s", availableProperties(m))
		}
		properties = append(properties, name)
	}
	return properties, nil
}

// splitNames splits values at commas. A value that is a known name is not split, because a name can contain
// commas.
func splitNames(values, known []string) (names []string) {
	for _, value := range values {
		if slices.Contains(known, value) {
			names = append(names, value)
			continue
		}
		names = append(names, strings.Split(value, ",")...)
	}
	return names
}

// availableProperties returns a text with the properties that a meter groups by.
func availableProperties(m metering.Meter) string {
	if len(m.Version.GroupBy) == 0 {
		return "it has none"
	}
	return "available: " + strings.Join(m.Version.GroupBy, ", ")
}
