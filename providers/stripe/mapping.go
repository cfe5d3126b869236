package stripe

import (
	"fmt"
	"slices"
	"strings"
)

// slugKey is the metadata of a price or meter that names one of ours.
const slugKey = "meter_slug"

// Match finds the item that a meter's usage goes to: the one whose price
// mapping names for the slug; without such a word the one whose price has the
// slug as its lookup key; without that the one whose price or meter has it in
// its metadata. It says why where there is not exactly one.
func Match(items []Item, slug string, mapping map[string]string) (Item, string) {
	if len(items) == 0 {
		return Item{}, "the customer has no active subscription at Stripe"
	}
	if price, ok := mapping[slug]; ok {
		return only(items, "the price "+price, func(i Item) bool { return i.PriceID == price })
	}
	byLookupKey := func(i Item) bool { return i.LookupKey == slug }
	if slices.ContainsFunc(items, byLookupKey) {
		return only(items, "a price with lookup key "+slug, byLookupKey)
	}
	return only(items, fmt.Sprintf("a price with lookup key %[2]s, or a price or Stripe meter with metadata %[1]s=%[2]s", slugKey, slug), func(i Item) bool {
		return i.PriceMetadata[slugKey] == slug || i.MeterMetadata[slugKey] == slug
	})
}

func only(items []Item, what string, wanted func(Item) bool) (Item, string) {
	var found []Item
	var ids []string
	for _, i := range items {
		if wanted(i) {
			found, ids = append(found, i), append(ids, i.ItemID)
		}
	}
	switch len(found) {
	case 0:
		return Item{}, fmt.Sprintf("no subscription item of the customer has %s", what)
	case 1:
		return found[0], ""
	default:
		return Item{}, fmt.Sprintf("several subscription items (%s) have %s; set the price of the meter in mapping", strings.Join(ids, ", "), what)
	}
}
