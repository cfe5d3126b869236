package stripetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Seed is the initial state of a test or a demo. Objects with an existing id are unchanged, so a seed can
// be applied twice. Objects without an id get one.
type Seed struct {
	Account       Account        `json:"account"`
	Customers     []Customer     `json:"customers"`
	Products      []Product      `json:"products,omitempty"`
	Meters        []Meter        `json:"meters"`
	Prices        []Price        `json:"prices"`
	Subscriptions []Subscription `json:"subscriptions"`
}

// Account owns the other objects of a Seed. A key that contains _live_ belongs to the account's live mode,
// and any other key to its test mode. Each mode has its own objects.
type Account struct {
	ID            string   `json:"id"`
	Key           string   `json:"key"`
	Permissions   []string `json:"permissions"`           // permissions of a restricted key; null: all
	WebhookURL    string   `json:"webhook_url"`           // default URL of POST /_webhook
	WebhookSecret string   `json:"webhook_secret"`        // default signing secret of POST /_webhook
	Decimals      bool     `json:"decimals,omitempty"`    // decimals in meter events; Stripe enables them on request
	APIVersion    string   `json:"api_version,omitempty"` // API version of the account's events; "": 2023-10-16

	// FinalAtOnce finalizes the last invoice of a subscription at once. Stripe does not document whether
	// this invoice is a draft for an hour, like other invoices.
	FinalAtOnce bool `json:"final_at_once,omitempty"`

	// KeepDrafts turns off auto_advance, so that drafts are not finalized automatically.
	KeepDrafts bool `json:"keep_drafts,omitempty"`
}

// Customer is a customer at Stripe.
type Customer struct {
	ID        string `json:"id"`
	Email     string `json:"email"`
	TestClock string `json:"test_clock"`

	BillingCredits int64 `json:"billing_credits,omitempty"` // remaining credits, in cents
}

// Product is a product, to which prices and lines without a price refer.
type Product struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Meter is a billing meter. The default of Formula is sum.
type Meter struct {
	ID              string            `json:"id"`
	EventName       string            `json:"event_name"`
	Formula         string            `json:"formula"`
	EventTimeWindow string            `json:"event_time_window"`
	CustomerKey     string            `json:"customer_key"`
	ValueKey        string            `json:"value_key"`
	Status          string            `json:"status"`
	Metadata        map[string]string `json:"metadata"`
}

// Price is a price, by default metered and in dollars.
type Price struct {
	ID             string            `json:"id"`
	LookupKey      string            `json:"lookup_key"`
	Metadata       map[string]string `json:"metadata"`
	Currency       string            `json:"currency"`
	UnitAmount     string            `json:"unit_amount_decimal"` // in the smallest unit: "2.5" is 2.5 cents
	TiersMode      string            `json:"tiers_mode,omitempty"`
	Tiers          []Tier            `json:"tiers,omitempty"`               // instead of UnitAmount
	Months         int               `json:"months,omitempty"`              // length of a period; 0: 1 month
	DivideBy       int64             `json:"transform_divide_by,omitempty"` // package size: units are priced in packages
	DivideRound    string            `json:"transform_round,omitempty"`     // "up" or "down"
	UsageType      string            `json:"usage_type"`
	Meter          string            `json:"meter"` // "": legacy metered billing
	AggregateUsage string            `json:"aggregate_usage"`
	Inactive       bool              `json:"inactive"`
}

// Subscription is a subscription, by default active with the calendar months of UTC as periods. All prices of a
// subscription have periods of the same length.
type Subscription struct {
	ID                string `json:"id"`
	Customer          string `json:"customer"`
	Status            string `json:"status"`
	Start             int64  `json:"current_period_start"`
	End               int64  `json:"current_period_end"` // the prices decide the length of later periods
	BillingThresholds bool   `json:"billing_thresholds"`
	Items             []Item `json:"items"`
	BillingMode       string `json:"billing_mode,omitempty"` // "flexible" or "classic"; "": classic
	TrialEnd          int64  `json:"trial_end,omitempty"`    // end of the first period
	CancelAtPeriodEnd bool   `json:"cancel_at_period_end,omitempty"`
	ThresholdAmount   int64  `json:"threshold_amount_gte,omitempty"` // amount of BillingThresholds; 0: never reached
	ResetAnchor       bool   `json:"reset_billing_cycle_anchor,omitempty"`
}

// Item is an item of a subscription.
type Item struct {
	ID    string `json:"id"`
	Price string `json:"price"`
}

// credential is the account and the permissions of an API key.
type credential struct {
	account     *account
	permissions []string // nil: all
}

// may reports whether the key has a permission. A key with a write permission also has the read permission.
func (c credential) may(permission string) bool {
	if c.permissions == nil || permission == "" {
		return true
	}
	resource, reading := strings.CutSuffix(permission, "_read")
	return slices.Contains(c.permissions, permission) || reading && slices.Contains(c.permissions, resource+"_write")
}

// forbidden returns the error for a key without the permission.
func (c *call) forbidden(permission string) answer {
	return refused(http.StatusForbidden, "", "", "The provided key '%s****' does not have the required permissions for this endpoint on account '%s'. "+
		"Having the 'rak_%s' permission would allow this request to continue.", apiKey(c.request)[:8], c.ID, permission).notSaved()
}

// account holds the objects of the test mode or of the live mode of an account.
type account struct {
	Account
	clocks        []*clock
	customers     []Customer
	products      []*product
	meters        []*Meter
	prices        []*Price
	subscriptions []*subscription
	records       map[string][]record // by item
	events        []event
	rejections    []Rejection
	unreported    map[string]*unreported // by meter
	happenings    []*happening
	identifiers   map[string]time.Time
	invoices      []*invoice
	drafts        []*invoice // drafts among invoices
	invoiceItems  []*invoiceItem
	saved         map[string]*saved
	busy          map[string]bool
}

// serveSeed handles POST /_seed.
func (f *Fake) serveSeed(w http.ResponseWriter, r *http.Request) {
	var in Seed
	if !decode(w, r, &in) {
		return
	}
	if err := f.Seed(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	encode(w, http.StatusOK, in)
}

// Seed adds objects to the fake, and sets missing ids and defaults in its argument.
func (f *Fake) Seed(in *Seed) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.Account.Key == "" {
		return fmt.Errorf("account: key is missing")
	}
	f.note(step{Serial: f.serial, Seed: in})
	a := f.accountOf(&in.Account)
	f.keys[in.Account.Key] = credential{a, in.Account.Permissions}
	for i := range in.Customers {
		f.setMissingID(&in.Customers[i].ID, "cus")
		if !a.hasCustomer(in.Customers[i].ID) {
			a.customers = append(a.customers, in.Customers[i])
		}
	}
	for i := range in.Products {
		f.setMissingID(&in.Products[i].ID, "prod")
		if a.product(in.Products[i].ID) == nil {
			a.products = append(a.products, &product{in.Products[i].ID, in.Products[i].Name, true})
		}
	}
	for i := range in.Meters {
		if err := f.addMeter(a, &in.Meters[i]); err != nil {
			return err
		}
	}
	for i := range in.Prices {
		if err := f.addPrice(a, &in.Prices[i]); err != nil {
			return err
		}
	}
	for i := range in.Subscriptions {
		if err := f.addSubscription(a, &in.Subscriptions[i]); err != nil {
			return err
		}
	}
	return nil
}

// setMissingID sets an empty id to a new one.
func (f *Fake) setMissingID(id *string, prefix string) {
	if *id == "" {
		*id = f.id(prefix)
	}
}

// accountOf returns the account with the id and the mode of the key. It creates the account if it does not exist.
func (f *Fake) accountOf(in *Account) *account {
	f.setMissingID(&in.ID, "acct")
	for _, a := range f.accounts {
		if a.ID == in.ID && a.livemode() == isLiveKey(in.Key) {
			return a
		}
	}
	a := &account{
		Account: *in, records: map[string][]record{}, identifiers: map[string]time.Time{},
		unreported: map[string]*unreported{}, saved: map[string]*saved{}, busy: map[string]bool{},
	}
	f.accounts = append(f.accounts, a)
	return a
}

// livemode reports whether the account is in live mode.
func (a *account) livemode() bool { return isLiveKey(a.Key) }

// isLiveKey reports whether a key is for live mode.
func isLiveKey(key string) bool { return strings.Contains(key, "_live_") }

// hasCustomer reports whether the account has a customer with the id.
func (a *account) hasCustomer(id string) bool {
	for _, c := range a.customers {
		if c.ID == id {
			return true
		}
	}
	return false
}

// addMeter adds a meter of the seed, with defaults for missing fields.
func (f *Fake) addMeter(a *account, in *Meter) error {
	f.setMissingID(&in.ID, "mtr")
	setDefault(&in.EventName, in.ID)
	setDefault(&in.Formula, "sum")
	setDefault(&in.CustomerKey, "stripe_customer_id")
	setDefault(&in.ValueKey, "value")
	setDefault(&in.Status, "active")
	if a.meter(in.ID) != nil {
		return nil
	}
	if in.Status == "active" && a.meterOf(in.EventName) != nil {
		return fmt.Errorf("meter %s: another has the event name %s", in.ID, in.EventName)
	}
	a.meters = append(a.meters, in)
	return nil
}

// addPrice adds a price of the seed, with defaults for missing fields.
func (f *Fake) addPrice(a *account, in *Price) error {
	f.setMissingID(&in.ID, "price")
	setDefault(&in.Currency, "usd")
	setDefault(&in.UnitAmount, "1")
	setDefault(&in.UsageType, "metered")
	setDefault(&in.AggregateUsage, "sum")
	if _, err := metering.ParseDecimal(in.UnitAmount); err != nil {
		return fmt.Errorf("price %s: unit_amount_decimal %w", in.ID, err)
	}
	if err := in.check(); err != nil {
		return fmt.Errorf("price %s: %w", in.ID, err)
	}
	if in.Meter != "" && a.meter(in.Meter) == nil {
		return fmt.Errorf("price %s: no meter %s", in.ID, in.Meter)
	}
	if a.price(in.ID) == nil {
		a.prices = append(a.prices, in)
	}
	return nil
}

// addSubscription adds a subscription of the seed, with defaults for missing fields.
func (f *Fake) addSubscription(a *account, in *Subscription) error {
	f.setMissingID(&in.ID, "sub")
	setDefault(&in.BillingMode, "classic")
	if in.TrialEnd > f.now().Unix() {
		setDefault(&in.Status, "trialing")
	}
	setDefault(&in.Status, "active")
	if in.Start == 0 && in.End == 0 {
		now := f.now()
		start := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		in.Start, in.End = start.Unix(), start.AddDate(0, 1, 0).Unix()
	}
	if in.Status == "trialing" && in.TrialEnd != 0 {
		in.End = in.TrialEnd
	}
	if in.End <= in.Start {
		return fmt.Errorf("subscription %s: its period ends before it begins", in.ID)
	}
	if !a.hasCustomer(in.Customer) {
		return fmt.Errorf("subscription %s: no customer %s", in.ID, in.Customer)
	}
	for i := range in.Items {
		f.setMissingID(&in.Items[i].ID, "si")
		if a.price(in.Items[i].Price) == nil {
			return fmt.Errorf("subscription %s: no price %s", in.ID, in.Items[i].Price)
		}
	}
	if a.subscription(in.ID) != nil {
		return nil
	}
	if has := a.conflictingCurrency(in); has != "" {
		return fmt.Errorf("subscription %s: customer %s is billed in %s", in.ID, in.Customer, has)
	}
	s := newSubscription(*in)
	s.months = a.months(in)
	a.subscriptions = append(a.subscriptions, s)
	return nil
}

// months returns the number of months in a subscription's periods, which its first price decides.
func (a *account) months(in *Subscription) int {
	if len(in.Items) == 0 {
		return 1
	}
	return max(1, a.price(in.Items[0].Price).Months)
}

// conflictingCurrency returns the currency that a price of a new subscription conflicts with: that of the
// customer or of an earlier price. It returns "" if all currencies are equal.
func (a *account) conflictingCurrency(in *Subscription) string {
	has := a.currencyOf(in.Customer)
	for _, i := range in.Items {
		currency := a.price(i.Price).Currency
		if has != "" && has != currency {
			return has
		}
		has = currency
	}
	return ""
}

// setDefault sets an empty value to standard.
func setDefault(value *string, standard string) {
	if *value == "" {
		*value = standard
	}
}

// meter returns the meter with an id, or nil.
func (a *account) meter(id string) *Meter {
	for _, m := range a.meters {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// price returns the price with an id, or nil.
func (a *account) price(id string) *Price {
	for _, p := range a.prices {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// subscription returns the subscription with an id, or nil.
func (a *account) subscription(id string) *subscription {
	for _, s := range a.subscriptions {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// item returns the subscription and the price of an item; nil if the item does not exist.
func (a *account) item(id string) (*subscription, *Price) {
	for _, s := range a.subscriptions {
		for _, i := range s.Items {
			if i.ID == id {
				return s, a.price(i.Price)
			}
		}
	}
	return nil, nil
}
