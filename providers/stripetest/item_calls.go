package stripetest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// itemChange is the change of one subscription item. id is "" for a new item, and price is "" for a removed
// item.
type itemChange struct{ id, price string }

// createItem handles POST /v1/subscription_items.
func (c *call) createItem() answer {
	s := c.subscription(c.form.Get("subscription"))
	if s == nil || !s.runs() {
		return refused(http.StatusBadRequest, "resource_missing", "subscription", "No such subscription: '%s'", c.form.Get("subscription"))
	}
	return c.changeItem(s, itemChange{price: c.form.Get("price")})
}

// updateItem handles POST /v1/subscription_items/{id}.
func (c *call) updateItem() answer {
	id := c.request.PathValue("id")
	s, price := c.item(id)
	if s == nil || !s.runs() {
		return missing("subscription_item", id)
	}
	if c.form.Has("price") {
		return c.changeItem(s, itemChange{id, c.form.Get("price")})
	}
	return okAnswer(c.itemObject(s, Item{id, price.ID}, c.view()))
}

// deleteItem handles DELETE /v1/subscription_items/{id}.
func (c *call) deleteItem() answer {
	id := c.request.PathValue("id")
	s, _ := c.item(id)
	if s == nil || !s.runs() {
		return missing("subscription_item", id)
	}
	return c.changeItem(s, itemChange{id: id})
}

// changeItem makes one change of a subscription's items, and returns the changed item.
func (c *call) changeItem(s *subscription, change itemChange) answer {
	if problem := c.changeProblem(s, change, "price"); problem != nil {
		return *problem
	}
	now := c.fake.customerTime(c.account, s.Customer).Truncate(time.Second)
	c.fake.changeSubscription(c.account, s, now, func() { c.changeItems(s, []itemChange{change}, now) })
	if change.price == "" {
		return okAnswer(object{"object": "subscription_item", "id": change.id, "deleted": true})
	}
	at := len(s.Items) - 1
	if change.id != "" {
		at = s.itemAt(change.id)
	}
	return okAnswer(c.itemObject(s, s.Items[at], c.view()))
}

// itemChanges parses the items in an update of their subscription.
func (c *call) itemChanges(s *subscription) ([]itemChange, *answer) {
	var changes []itemChange
	for n := 0; ; n++ {
		field := "items[" + strconv.Itoa(n) + "]"
		change := itemChange{c.form.Get(field + "[id]"), c.form.Get(field + "[price]")}
		if change == (itemChange{}) {
			return changes, nil
		}
		if change.price == "" && c.form.Get(field+"[deleted]") != "true" {
			continue // no field that the fake supports is changed
		}
		if problem := c.changeProblem(s, change, field+"[price]"); problem != nil {
			return nil, problem
		}
		changes = append(changes, change)
	}
}

// changeProblem returns an error if the change is not possible. field is the parameter of the price.
func (c *call) changeProblem(s *subscription, change itemChange, field string) *answer {
	var problem answer
	price := c.price(change.price)
	switch {
	case change.id != "" && s.itemAt(change.id) < 0:
		problem = missing("subscription_item", change.id)
	case change.price != "" && (price == nil || price.Inactive):
		problem = c.priceRefused(field, change.price)
	case price != nil && len(s.Items) > 0 && price.Currency != c.currency(s):
		problem = otherCurrency(c.currency(s))
	default:
		return nil
	}
	return &problem
}

// itemAt returns the index of the item with an id, or -1.
func (s *subscription) itemAt(id string) int {
	return slices.IndexFunc(s.Items, func(i Item) bool { return i.ID == id })
}

// changeItems adds and removes items, and changes their prices from now on:
// https://docs.stripe.com/billing/subscriptions/usage-based/manage-billing-setup
func (c *call) changeItems(s *subscription, changes []itemChange, now time.Time) {
	if len(changes) == 0 {
		return
	}
	s.Items = slices.Clone(s.Items) // invoices and seeds keep the old slice
	for _, change := range changes {
		at := s.itemAt(change.id)
		switch {
		case change.id == "":
			change.id = c.fake.id("si")
			s.Items = append(s.Items, Item{change.id, change.price})
		case s.Items[at].Price == change.price:
			continue
		case change.price == "":
			c.billSegment(s, s.Items[at], now)
			s.Items = slices.Delete(s.Items, at, at+1)
		default:
			c.billSegment(s, s.Items[at], now)
			s.Items[at].Price = change.price
		}
		s.since[change.id] = now
		delete(s.billed, change.id)
	}
	if c.form.Get("proration_behavior") == "always_invoice" && c.hasPendingItems(s) {
		c.fake.addDraft(c.account, &invoice{customer: s.Customer, subscription: s, reason: "subscription_update", start: now, end: now})
	}
}

// billSegment creates an invoice item for the usage until now, at the price that ends now. It does so only in
// the flexible billing mode. In the classic mode, no invoice bills this usage. After the price change, a call
// can still report usage for the time before the change. The fake assumes that neither mode bills such usage.
// Stripe documents "at the price effective at the time it's reported", which can mean the time of the call or
// the timestamp of the usage.
func (c *call) billSegment(s *subscription, i Item, now time.Time) {
	price := c.price(i.Price)
	if s.BillingMode != "flexible" || c.form.Get("proration_behavior") == "none" || price.UsageType != "metered" {
		return
	}
	u := c.spanOf(s, i, s.start, now)
	quantity, amount := totalQuantity(u.lines), totalAmount(u.lines)
	if quantity.IsZero() && amount.IsZero() {
		return
	}
	c.invoiceItems = append(c.invoiceItems, &invoiceItem{
		id: c.fake.id("ii"), customer: s.Customer, subscription: s.ID, currency: price.Currency, amount: amount, quantity: quantity,
		item: i.ID, price: price, start: u.start.Unix(), end: now.Unix(), made: now, metadata: map[string]string{},
	})
}
