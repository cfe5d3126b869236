package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// howToConfirm ends the description of each write that can need a confirmation.
const howToConfirm = "If the charges of a begun billing period would change, or the currency of the prices of a later one, the request returns 409 `confirmation_required`. " +
	"To apply it, repeat the request with `confirm` set to `confirmation.token`."

// Confirm is in the body of each write that can change the charges of begun billing periods.
type Confirm struct {
	Token string `json:"confirm,omitempty" maxLength:"64" doc:"Token from the 409 confirmation_required of this request. Not needed if no begun billing period is charged differently, and no later one in another currency"`
}

// Confirmation describes a write that changes how begun billing periods are charged, or the currency of later ones.
type Confirmation struct {
	Token     string           `json:"token" doc:"Value of 'confirm' for the repeated request. The token becomes invalid when a price, plan assignment, meter definition or time zone changes. The token also becomes invalid when a billing period with other dates begins or closes"`
	Customers int              `json:"customers" doc:"Number of customers with a begun billing period that would be charged differently, or with a later one in another currency"`
	Periods   []ChangedPeriods `json:"periods" doc:"The affected billing periods, one item for each calendar month in which such periods begin. Empty if only the currency of later periods would change"`
	Changes   []PriceImpact    `json:"changes" doc:"Changes in the customers' charges by currency, for the usage so far. If empty, only future usage is charged differently"`
	Uncounted []string         `json:"uncounted" doc:"Ids of meters that are missing from 'changes' because their earlier events are not counted yet"`
	AsOf      time.Time        `json:"as_of" doc:"Time at which 'changes' was computed. Later usage changes the amounts in 'changes', not the token"`
}

// ChangedPeriods are the billing periods of a confirmation that begin in one calendar month.
type ChangedPeriods struct {
	Start     time.Time `json:"start" doc:"Earliest start of the affected periods"`
	End       time.Time `json:"end" doc:"Latest end of the affected periods, exclusive"`
	Customers int       `json:"customers"`
}

// confirmationError is the error of a write that is refused until the caller confirms it.
type confirmationError struct {
	problem      *metering.Error
	confirmation Confirmation
}

func (e *confirmationError) Error() string { return e.problem.Error() }
func (e *confirmationError) Unwrap() error { return e.problem }

// catalogWrite is a write that can change the charges of begun billing periods or the currency of later ones.
type catalogWrite struct {
	change  any       // the operation and all its inputs, in a fixed order: the token covers their JSON
	subject string    // subject of the sentence in the problem's detail
	confirm string    // the token in the request
	from    time.Time // time from which the change applies; zero: at once
	impact  func(now time.Time) (ledger.Impact, error)
	write   func(within db.Catalog) error
}

// maxCatalogTries bounds the attempts of a write. An attempt fails if the catalog was changed in the meantime.
const maxCatalogTries = 25

// writeCatalog applies a write if it changes neither the charges of begun billing periods nor the currency of later
// ones, or if the caller has confirmed it. Otherwise it returns a confirmationError. The transaction runs the write
// before it checks the confirmation, so that an invalid write returns its own error instead of a confirmationError.
// If the impact is out of date when the transaction has locked the catalog, writeCatalog computes it again.
func (s *server) writeCatalog(ctx context.Context, w catalogWrite) error {
	tenant := principalOf(ctx).Tenant
	for range maxCatalogTries {
		now := s.Now()
		impact, err := w.impact(now)
		if err != nil {
			return err
		}
		token, err := s.confirmationToken(ctx, w.change, impact)
		if err != nil {
			return err
		}
		err = s.Store.AtRevision(ctx, tenant.ID, impact.Revision, func(within db.Catalog) error {
			if !s.Now().Before(w.impactUntil(now, tenant.Location())) {
				return db.ErrCatalogMoved
			}
			if err := w.write(within); err != nil {
				return err
			}
			if impact.Customers == 0 {
				return nil
			}
			if who := principalOf(ctx); !PricingRead.allows(who) {
				return metering.Errorf(metering.CodeForbidden, "%s changes how customers are charged. %s lacks permission %s, which this requires", w.subject, who, PricingRead)
			}
			if !hmac.Equal([]byte(w.confirm), []byte(token)) {
				return confirmationRequired(w.subject, token, impact)
			}
			return nil
		})
		if !errors.Is(err, db.ErrCatalogMoved) {
			return err
		}
	}
	return metering.Errorf(metering.CodeOverloaded, "other changes to prices, plans or meters were saved first; try again")
}

// impactUntil returns the time at which an impact that was computed at now becomes out of date without any other write:
// the start of the next calendar month, when billing periods begin. If the change applies from an earlier time after
// now, impactUntil returns that time.
func (w catalogWrite) impactUntil(now time.Time, timezone *time.Location) time.Time {
	until := billing.CalendarPeriod(now, timezone).End
	if w.from.After(now) && w.from.Before(until) {
		return w.from
	}
	return until
}

// confirmationToken returns a MAC of the change, the tenant, the catalog's revision and the affected billing
// periods. The MAC does not cover amounts, because new usage changes the amounts continuously.
func (s *server) confirmationToken(ctx context.Context, change any, impact ledger.Impact) (string, error) {
	periods := make([]usagePeriod, len(impact.Ranges))
	for i, r := range impact.Ranges {
		periods[i] = usagePeriod(r)
	}
	signed, err := json.Marshal(struct {
		Tenant   metering.TenantID `json:"tenant"`
		Change   any               `json:"change"`
		Revision int64             `json:"revision"`
		Periods  []usagePeriod     `json:"periods"`
	}{principalOf(ctx).Tenant.ID, change, impact.Revision, periods})
	if err != nil {
		return "", fmt.Errorf("sign confirmation: %w", err)
	}
	mac := hmac.New(sha256.New, s.confirmationKey)
	mac.Write(signed)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

func confirmationRequired(subject, token string, impact ledger.Impact) error {
	c := Confirmation{
		Token: token, Customers: impact.Customers, Periods: []ChangedPeriods{}, Changes: showImpact(impact.Changes),
		Uncounted: make([]string, 0, len(impact.Uncounted)), AsOf: impact.AsOf.UTC(),
	}
	for _, meter := range impact.Uncounted {
		c.Uncounted = append(c.Uncounted, meter.String())
	}
	for _, m := range impact.Months {
		c.Periods = append(c.Periods, ChangedPeriods{m.Start.UTC(), m.End.UTC(), m.Customers})
	}
	periods := "begun"
	if len(c.Periods) == 0 {
		periods = "later"
	}
	message := fmt.Sprintf("%s changes how %s billing periods of %d customer(s) are charged: %s. Nothing was changed. To apply it, repeat the request with confirm set to confirmation.token",
		subject, periods, c.Customers, changesOf(c, impact.Currencies))
	return &confirmationError{metering.Errorf(codeConfirmation, "%s", message), c}
}

// changesOf describes the changed amounts and currencies of a confirmation in words, for the problem's detail.
func changesOf(c Confirmation, currencies []ledger.CurrencyImpact) string {
	var each []string
	for _, i := range c.Changes {
		each = append(each, fmt.Sprintf("%s %s now, %s after the change, for %d customer(s)", i.Currency, i.Before, i.After, i.Customers))
	}
	if len(c.Uncounted) > 0 {
		each = append(each, "the charges of "+strings.Join(c.Uncounted, ", ")+" are unknown until earlier events are counted; preview the usage with POST /v1/meters/{slug}/preview")
	}
	for _, i := range currencies {
		each = append(each, fmt.Sprintf("%d customer(s) are billed in %s and would be charged in %s, which an invoice in %s cannot contain", i.Customers, i.From, i.To, i.From))
	}
	if len(each) == 0 {
		each = []string{"no charge differs so far, only future usage is charged differently"}
	}
	return strings.Join(each, "; ")
}
