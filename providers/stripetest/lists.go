package stripetest

import (
	"slices"
	"strconv"
	"strings"
)

// object is an object of Stripe in a response.
type object = map[string]any

// matchesFilter reports whether the call's parameter filter is empty or equal to the value.
func (c *call) matchesFilter(filter, value string) bool {
	return c.form.Get(filter) == "" || c.form.Get(filter) == value
}

// page returns the page of a list that the call selects with limit, starting_after or ending_before.
func (c *call) page(all []object) answer {
	limit := 10
	if text := c.form.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return invalid("limit", "This value must be from 1 to 100 (it currently is '%s').", text)
		}
		limit = n
	}
	if after := c.form.Get("starting_after"); after != "" {
		at := slices.IndexFunc(all, func(o object) bool { return o["id"] == after })
		if at < 0 {
			return invalid("starting_after", "No such object: '%s'", after)
		}
		all = all[at+1:]
	}
	if before := c.form.Get("ending_before"); before != "" {
		at := slices.IndexFunc(all, func(o object) bool { return o["id"] == before })
		if at < 0 {
			return invalid("ending_before", "No such object: '%s'", before)
		}
		return okAnswer(pageBefore(all[:at], limit, c.request.URL.Path))
	}
	return okAnswer(listObject(all, limit, c.request.URL.Path))
}

// listObject returns a list with the first limit objects.
func listObject(all []object, limit int, url string) object {
	shown := all[:min(limit, len(all))]
	if shown == nil {
		shown = []object{}
	}
	return object{"object": "list", "url": url, "has_more": len(all) > len(shown), "data": shown}
}

// pageBefore returns the last page of the objects that precede ending_before.
func pageBefore(all []object, limit int, url string) object {
	page := listObject(all[max(0, len(all)-limit):], limit, url)
	page["has_more"] = len(all) > limit
	return page
}

// view returns the view of objects in the response to the call.
func (c *call) view() view {
	tiers := false
	for field, values := range c.form {
		tiers = tiers || strings.HasPrefix(field, "expand[") && slices.ContainsFunc(values, func(path string) bool {
			return path == "tiers" || strings.HasSuffix(path, ".tiers")
		})
	}
	return view{c.version, tiers}
}
