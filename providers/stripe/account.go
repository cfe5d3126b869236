package stripe

import (
	"context"
	"regexp"

	"github.com/odometer-metering/odometer/metering"
)

// Account is whom a key belongs to.
type Account struct {
	ID       string // "" where a restricted key may not see it
	Livemode bool
}

// https://docs.stripe.com/keys: the prefix says what a key may do and for which mode.
var keyPattern = regexp.MustCompile(`^(sk|rk)_(live|test)_[A-Za-z0-9_]{1,240}$`)

// Validate says whose key it is, after Stripe let it read what a sync reads
// first. Every error is safe to show: none repeats the key.
func (c *Client) Validate(ctx context.Context, key string) (Account, error) {
	parts := keyPattern.FindStringSubmatch(key)
	if parts == nil {
		return Account{}, metering.Errorf(metering.CodeProviderRefuse,
			"that is not a secret or restricted API key of Stripe; they begin with sk_live_, sk_test_, rk_live_ or rk_test_")
	}
	var account struct {
		ID string `json:"id"`
	}
	err := c.read(ctx, key, "/v1/account", nil, &account)
	if err != nil && AnswerOf(err).Status != 403 {
		return Account{}, err
	}
	var ignored struct{}
	if err := c.read(ctx, key, "/v1/subscriptions", query("limit", "1"), &ignored); err != nil {
		return Account{}, err
	}
	return Account{ID: account.ID, Livemode: parts[2] == "live"}, nil
}
