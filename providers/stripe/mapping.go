package stripe

import (
	"fmt"
	"slices"
	"strings"
)

// slugKey is the metadata field of a price or Stripe meter that holds the slug of our meter.
const slugKey = "meter_slug"

// Match returns the item that bills the usage of the meter with the slug. It selects items by the first rule
// that applies:
//
//  1. If mapping contains the slug, the item has the mapped price.
//  2. If any item's price has the slug as its lookup key, the item has such a price.
//  3. Otherwise the item's price or Stripe meter has the slug in its metadata.
//
// If the rule selects no item or several items, Match returns the reason instead.
func Match(items []Item, slug string, mapping map[string]string) (Item, string) {
	if len(items) == 0 {
		return Item{}, "the customer has no active subscription at Stripe"
	}
	if price, ok := mapping[slug]; ok {
		return matchOne(items, "the price "+price, func(i Item) bool { return i.PriceID == price })
	}
	byLookupKey := func(i Item) bool { return i.LookupKey == slug }
	if slices.ContainsFunc(items, byLookupKey) {
		return matchOne(items, "a price with lookup key "+slug, byLookupKey)
	}
	return matchOne(items, fmt.Sprintf("a price with lookup key %[2]s, or a price or Stripe meter with metadata %[1]s=%[2]s", slugKey, slug), func(i Item) bool {
		return i.PriceMetadata[slugKey] == slug || i.MeterMetadata[slugKey] == slug
	})
}

// matchOne returns the only item that wanted accepts. If there is no such item or more than one, matchOne returns a
// reason that describes the wanted items with description.
func matchOne(items []Item, description string, wanted func(Item) bool) (Item, string) {
	var found []Item
	var ids []string
	for _, i := range items {
		if wanted(i) {
			found, ids = append(found, i), append(ids, i.ItemID)
		}
	}
	switch len(found) {
	case 0:
		return Item{}, fmt.Sprintf("no subscription item of the customer has %s", description)
	case 1:
		return found[0], ""
	default:
		return Item{}, fmt.Sprintf("several subscription items (%s) have %s; set the price of the meter in mapping", strings.Join(ids, ", "), description)
	}
}
