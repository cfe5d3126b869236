package stripe

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/form"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Account is the account and mode that an API key belongs to.
type Account struct {
	ID       string
	Livemode bool
}

// keyPattern matches secret and restricted keys. The prefix contains the kind and the mode of a key:
// https://docs.stripe.com/keys
var keyPattern = regexp.MustCompile(`^(sk|rk)_(live|test)_[A-Za-z0-9_]{1,240}$`)

// Livemode reports whether the API key moves real money.
func Livemode(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// Validate returns the account of the API key. For a restricted key, it first tries each call in needs. It also
// lists subscriptions, as the first step of a sync does. Errors are safe to show, because none contains the
// key.
func (c *Client) Validate(ctx context.Context, key string) (Account, error) {
	if err := c.checkKey(key); err != nil {
		return Account{}, err
	}
	if strings.HasPrefix(key, "rk_") {
		if err := c.checkPermissions(ctx, key); err != nil {
			return Account{}, err
		}
	}
	var account struct {
		ID string `json:"id"`
	}
	if err := c.read(ctx, key, "/v1/account", nil, &account); err != nil {
		return Account{}, err
	}
	if account.ID == "" {
		return Account{}, metering.Errorf(metering.CodeProviderDown, "Stripe's answer could not be read")
	}
	var ignored struct{}
	if err := c.read(ctx, key, "/v1/subscriptions", query("limit", "1"), &ignored); err != nil {
		return Account{}, err
	}
	return Account{ID: account.ID, Livemode: Livemode(key)}, nil
}

// checkKey returns an error if the key does not have the form of an API key, or if it is a live key that must not be
// sent to the base URL. It makes no call.
func (c *Client) checkKey(key string) error {
	refuse := func(text string) error { return metering.Errorf(metering.CodeProviderRefuse, "%s", text) }
	switch {
	case strings.HasPrefix(key, "pk_"):
		return refuse("secret_key is a publishable key, which Stripe allows neither to read nor to bill usage; save a secret key (sk_) or a restricted key (rk_)")
	case strings.HasPrefix(key, "whsec_"):
		return refuse("secret_key is the signing secret of a webhook endpoint at Stripe; save an API key, which begins with sk_ or rk_")
	case !keyPattern.MatchString(key):
		return refuse("secret_key must be a secret or restricted API key of Stripe, which begins with sk_live_, sk_test_, rk_live_ or rk_test_")
	case Livemode(key) && !c.trusted:
		return refuse("secret_key must be a test-mode key: STRIPE_API_BASE replaces Stripe on this server, and a live key must not be sent there")
	}
	return nil
}

// trusted reports whether live keys can be sent to baseURL: to Stripe or to this machine.
func trusted(baseURL string) bool {
	if baseURL == "" || baseURL == stripego.APIURL {
		return true
	}
	u, err := url.Parse(baseURL)
	return err == nil && providers.Loopback(u.Hostname())
}

// needs are the calls of a sync for which a restricted key can lack the permission. Stripe checks the
// permission before the parameters, so the write calls omit all parameters and write nothing. Usage records are
// not included, because not every account has legacy metered billing.
var needs = []struct {
	what, method, path string
	query              *form.Values
}{
	{"read the account", http.MethodGet, "/v1/account", nil},
	{"read subscriptions", http.MethodGet, "/v1/subscriptions", query("limit", "1")},
	{"read prices", http.MethodGet, "/v1/prices", query("limit", "1")},
	{"read meters", http.MethodGet, "/v1/billing/meters", query("limit", "1")},
	{"read meter event summaries", http.MethodGet, "/v1/billing/meters/mtr_none/event_summaries", query("customer", "cus_none", "start_time", "0", "end_time", "60")},
	{"write meter events", http.MethodPost, "/v1/billing/meter_events", nil},
	{"read invoices", http.MethodGet, "/v1/invoices", query("limit", "1")},
	{"read invoice items", http.MethodGet, "/v1/invoiceitems", query("limit", "1")},
	{"write invoice items", http.MethodPost, "/v1/invoiceitems", nil},
	{"read events", http.MethodGet, "/v1/events", query("limit", "1")},
}

// checkPermissions returns an error that names every permission that the restricted key lacks.
func (c *Client) checkPermissions(ctx context.Context, key string) error {
	var lacks []string
	for _, need := range needs {
		ctx, x := withExchange(ctx)
		var ignored raw
		answer, err := judge(x, c.backend.CallRaw(need.method, need.path, key, need.query, &stripego.Params{Context: ctx}, &ignored))
		switch {
		case answer.Status == http.StatusForbidden:
			lacks = append(lacks, need.what+inParentheses(answer.Permission))
		case answer.Status == http.StatusUnauthorized || metering.CodeOf(err) == metering.CodeProviderDown:
			return err
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return metering.Errorf(metering.CodeProviderRefuse, "the restricted key lacks these permissions: %s. Grant them at Stripe, or save a secret key",
		strings.Join(lacks, ", "))
}
