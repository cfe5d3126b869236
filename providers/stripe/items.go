package stripe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/billing"
)

// Item is one item of a customer's subscription, with the billing fields of its price and meter.
type Item struct {
	SubscriptionID    string
	ItemID            string
	PriceID           string
	LookupKey         string
	PriceMetadata     map[string]string
	Currency          string // ISO 4217 code of the billing currency
	UsageType         string // metered or licensed
	MeterID           string // "": legacy metered billing
	MeterStatus       string
	MeterEventName    string
	MeterFormula      string // sum, count, last, …
	MeterMetadata     map[string]string
	MeterMapping      string // by_id: the event's payload contains the customer's id
	CustomerKey       string // field of an event's payload with the customer's id
	ValueKey          string // field of an event's payload with the value
	EventTimeWindow   string // hour, day or "": UTC window in which only the newest event counts
	PeriodStart       time.Time
	PeriodEnd         time.Time
	Trial             bool // the period is a trial: its usage is not charged
	Ended             bool // the subscription has ended; its last invoice is a draft, which accepts usage and no charges
	BillingThresholds bool
}

// metered is the usage type of a price for counted units.
const metered = "metered"

// Method returns the method for sending usage to the item, or the reason why there is none.
func (i Item) Method() (billing.Method, string) {
	switch {
	case i.UsageType != metered:
		return "", fmt.Sprintf("price %s is not metered", i.PriceID)
	case i.MeterID == "" && i.BillingThresholds:
		// https://docs.stripe.com/api/usage_records/create: with thresholds, increment is the only action.
		return "", fmt.Sprintf("subscription %s has billing thresholds, so Stripe does not allow setting its usage; attach price %s to a Stripe meter",
			i.SubscriptionID, i.PriceID)
	case i.MeterID == "" && i.Ended:
		return "", fmt.Sprintf("subscription %s has ended and no longer accepts usage records", i.SubscriptionID)
	case i.MeterID == "":
		return UsageRecord, ""
	case i.MeterStatus == "inactive":
		return "", fmt.Sprintf("Stripe's meter %s is inactive", i.MeterID)
	case i.MeterMapping != "by_id":
		return "", fmt.Sprintf("Stripe's meter %s does not map events to customers by id", i.MeterID)
	case i.MeterFormula == "count":
		return "", fmt.Sprintf("Stripe's meter %s counts events, so it cannot receive totals; use a meter with formula sum", i.MeterID)
	case i.MeterFormula == "last": // also with an event time window, because only the newest window counts
		return MeterLast, ""
	case i.MeterFormula != "sum":
		return "", fmt.Sprintf("Stripe's meter %s has formula %q; use a meter with formula sum", i.MeterID, i.MeterFormula)
	case i.EventTimeWindow != "":
		return MeterWindow, ""
	default:
		return MeterDelta, ""
	}
}

// target returns the id of the object that totals the usage: a Stripe meter or, for legacy metered billing,
// the item.
func (i Item) target() string { return cmp.Or(i.MeterID, i.ItemID) }

// Items returns the items of the customer's active, trialing and past due subscriptions. If there are none,
// it returns the items of ended subscriptions that still have a draft as their last invoice.
func (c *Client) Items(ctx context.Context, key, customerID string) ([]Item, error) {
	items, _, err := c.items(ctx, key, customerID)
	return items, err
}

// items returns the result of Items and all of the customer's subscriptions.
func (c *Client) items(ctx context.Context, key, customerID string) (items []Item, all []subscription, err error) {
	all, err = list[subscription](ctx, c, key, "/v1/subscriptions", query("customer", customerID, "status", "all"))
	if err != nil {
		return nil, nil, fmt.Errorf("list subscriptions: %w", err)
	}
	for i, s := range all {
		if !s.Items.HasMore {
			continue
		}
		all[i].Items.Data, err = list[subscriptionItem](ctx, c, key, "/v1/subscription_items", query("subscription", s.ID))
		if err != nil {
			return nil, nil, fmt.Errorf("list subscription items: %w", err)
		}
	}
	subscriptions, err := c.billedSubscriptions(ctx, key, all)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range subscriptions {
		items = append(items, s.items()...)
	}
	for i := range items {
		if err := c.addMeter(ctx, key, &items[i]); err != nil {
			return nil, nil, fmt.Errorf("get meter: %w", err)
		}
	}
	return items, all, nil
}

// subscription is a subscription in the API.
type subscription struct {
	ID                string     `json:"id"`
	Status            string     `json:"status"`
	Customer          reference  `json:"customer"`
	Currency          string     `json:"currency"`
	BillingThresholds thresholds `json:"billing_thresholds"`
	TrialEnd          int64      `json:"trial_end"` // 0: no trial
	StartDate         int64      `json:"start_date"`
	EndedAt           int64      `json:"ended_at"` // 0: not ended
	LatestInvoice     reference  `json:"latest_invoice"`
	period
	Items struct {
		Data    []subscriptionItem `json:"data"`
		HasMore bool               `json:"has_more"`
	} `json:"items"`
}

func (s subscription) id() string { return s.ID }

// period is a field of the subscription before version 2025-03-31, and of its items since then:
// https://docs.stripe.com/changelog/basil/2025-03-31/deprecate-subscription-current-period-start-and-end
type period struct {
	Start int64 `json:"current_period_start"`
	End   int64 `json:"current_period_end"`
}

type subscriptionItem struct {
	ID                string     `json:"id"`
	BillingThresholds thresholds `json:"billing_thresholds"`
	period
	Price price `json:"price"`
}

func (i subscriptionItem) id() string { return i.ID }

// price is the price in an item or an invoice line of the API, without its tiers. If Stripe does not expand the price,
// only its id is set. The type shownPrice has the tiers.
type price struct {
	ID            string            `json:"id"`
	Currency      string            `json:"currency"`
	LookupKey     string            `json:"lookup_key"`
	Metadata      map[string]string `json:"metadata"`
	BillingScheme string            `json:"billing_scheme"`
	UnitAmount    *string           `json:"unit_amount_decimal"`
	Transform     json.RawMessage   `json:"transform_quantity"`
	Recurring     struct {
		UsageType string    `json:"usage_type"`
		Meter     reference `json:"meter"`
	} `json:"recurring"`
}

func (p *price) UnmarshalJSON(text []byte) error {
	if len(text) == 0 || text[0] != '{' {
		return json.Unmarshal(text, &p.ID)
	}
	type shown price
	return json.Unmarshal(text, (*shown)(p))
}

// item returns an Item with the fields that the price decides.
func (p price) item() Item {
	return Item{
		PriceID: p.ID, LookupKey: p.LookupKey, PriceMetadata: p.Metadata, Currency: strings.ToUpper(p.Currency),
		UsageType: p.Recurring.UsageType, MeterID: string(p.Recurring.Meter),
	}
}

// thresholds is true if billing thresholds are set. The API encodes them as an object or as null.
type thresholds bool

func (t *thresholds) UnmarshalJSON(text []byte) error {
	*t = string(text) != "null"
	return nil
}

// items converts the items of the subscription, without the fields of their meters.
func (s subscription) items() []Item {
	var items []Item
	for _, i := range s.Items.Data {
		at := i.period
		if at.End == 0 {
			at = s.period
		}
		item := i.Price.item()
		item.SubscriptionID, item.ItemID, item.Currency = s.ID, i.ID, cmp.Or(strings.ToUpper(s.Currency), item.Currency)
		item.PeriodStart, item.PeriodEnd = instant(at.Start), instant(at.End)
		if item.Ended = s.EndedAt != 0; item.Ended {
			item.PeriodEnd = instant(min(at.End, s.EndedAt))
		}
		item.BillingThresholds = bool(s.BillingThresholds || i.BillingThresholds)
		item.Trial = s.TrialEnd != 0 && at.End <= s.TrialEnd
		items = append(items, item)
	}
	return items
}

// meter is a Stripe meter in the API.
type meter struct {
	EventName       string            `json:"event_name"`
	EventTimeWindow string            `json:"event_time_window"`
	Status          string            `json:"status"`
	Metadata        map[string]string `json:"metadata"`
	Aggregation     struct {
		Formula string `json:"formula"`
	} `json:"default_aggregation"`
	CustomerMapping struct {
		Type string `json:"type"`
		Key  string `json:"event_payload_key"`
	} `json:"customer_mapping"`
	ValueSettings struct {
		Key string `json:"event_payload_key"`
	} `json:"value_settings"`
}

// objectKey identifies an object of an account. It holds a hash instead of the account's API key.
type objectKey struct {
	account [sha256.Size]byte
	id      string
}

// addMeter reads the item's Stripe meter and sets the item's meter fields. It caches only active meters, because the
// status is the only one of these fields that can change.
func (c *Client) addMeter(ctx context.Context, key string, i *Item) error {
	if i.MeterID == "" {
		return nil
	}
	at := objectKey{sha256.Sum256([]byte(key)), i.MeterID}
	m, known := c.meters.Get(at)
	if !known {
		if err := c.read(ctx, key, stripego.FormatURLPath("/v1/billing/meters/%s", i.MeterID), nil, &m); err != nil {
			return err
		}
		if m.Status == "active" {
			c.meters.Add(at, m)
		}
	}
	i.MeterStatus, i.MeterEventName, i.MeterFormula = m.Status, m.EventName, m.Aggregation.Formula
	i.EventTimeWindow, i.MeterMetadata = m.EventTimeWindow, m.Metadata
	i.MeterMapping, i.CustomerKey, i.ValueKey = m.CustomerMapping.Type, m.CustomerMapping.Key, m.ValueSettings.Key
	return nil
}
