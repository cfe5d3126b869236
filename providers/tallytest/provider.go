package tallytest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Kind is the kind of the provider.
const Kind metering.ProviderKind = "tally"

// Sum is the only method of the provider.
const Sum billing.Method = "sum"

const timeout = 5 * time.Second

// Provider calls the server at base.
type Provider struct{ base string }

// New returns the provider with its server at base.
func New(base string) Provider { return Provider{base} }

// Describe returns the properties of the provider.
func (Provider) Describe() providers.Description {
	return providers.Description{Kind: Kind, Name: "Tally", Settings: settings, AtOnce: 2, Timeout: timeout, Remembers: 24 * time.Hour, CountsWithin: time.Minute}
}

var settings = []providers.Setting{
	{Name: "tally_token", Use: providers.CallSecret, MaxLength: 64, Doc: "Only for type tally. Token of an account"},
	{Name: "tally_meters", Use: providers.Mapping, MaxLength: 10, Doc: "Only for type tally. Name at Tally for each meter slug"},
}

// Validate returns the account of the token.
func (p Provider) Validate(ctx context.Context, _ providers.Settings, secrets providers.Secrets) (providers.Identity, error) {
	var known account
	if _, err := p.call(ctx, providers.Credentials{Secret: secrets.Call}, http.MethodGet, "/account", nil, &known); err != nil {
		return providers.Identity{}, providers.Unreached(err, "Tally did not answer")
	}
	return providers.Identity{Account: known.ID, Mode: providers.Test}, nil
}

// Read assigns every meter the total named by its mapping or, without one, by its slug.
func (p Provider) Read(ctx context.Context, c providers.Credentials, q providers.Question) (billing.Side, error) {
	side := billing.Side{Customer: q.Customer}
	reason := "the customer has no account at Tally"
	if q.Customer != "" {
		var found contract
		status, err := p.call(ctx, c, http.MethodGet, "/contracts/"+url.PathEscape(q.Customer), nil, &found)
		if err != nil && status != http.StatusNotFound {
			return side, err
		}
		if err == nil {
			reason = ""
			side.Subscription, side.Period = "contract of "+q.Customer, metering.Range{Start: found.Start, End: found.End}
		}
	}
	for _, m := range q.Meters {
		d := billing.Destination{MeterID: m.ID, Excluded: billing.NoTarget(reason)}
		if reason == "" {
			d.Target, d.Method, d.Counting = cmp.Or(q.Mapping[m.Slug], m.Slug), Sum, billing.Adds
		}
		side.Destinations = append(side.Destinations, d)
	}
	return side, nil
}

// Frame encodes a report.
func (Provider) Frame(m billing.Message) (billing.Framed, error) {
	body, err := json.Marshal(usage{m.Customer, m.Target, m.Quantity})
	return billing.Framed{Body: body}, err
}

// Send stores a report at Tally under its id.
func (p Provider) Send(ctx context.Context, c providers.Credentials, s providers.Sending) providers.Outcome {
	status, err := p.call(ctx, c, http.MethodPut, "/reports/"+s.ReportID.String(), s.Body, nil)
	if err != nil {
		return providers.Outcome{Err: err}
	}
	return providers.Outcome{State: billing.Accepted, Answer: fmt.Sprintf("Tally answered %d", status)}
}

// Find reads a report from Tally by its id.
func (p Provider) Find(ctx context.Context, c providers.Credentials, s providers.Sending, _ providers.Place, _ metering.Decimal) (providers.Found, error) {
	status, err := p.call(ctx, c, http.MethodGet, "/reports/"+s.ReportID.String(), nil, nil)
	switch {
	case status == http.StatusNotFound:
		return providers.Found{}, nil
	case err != nil:
		return providers.Found{}, err
	}
	return providers.Found{State: billing.Accepted, Answer: "seen at Tally"}, nil
}

// Count returns the total of a meter for a customer at Tally.
func (p Provider) Count(ctx context.Context, c providers.Credentials, at providers.Place) (metering.Decimal, error) {
	var counted total
	_, err := p.call(ctx, c, http.MethodGet, "/totals/"+url.PathEscape(at.Customer)+"/"+url.PathEscape(at.Target), nil, &counted)
	return counted.Total, err
}

// call makes a request, and decodes the body of the response into into unless that is nil.
func (p Provider) call(ctx context.Context, c providers.Credentials, method, path string, body []byte, into any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.Secret)
	response, err := (&http.Client{Timeout: timeout}).Do(request)
	if err != nil {
		return 0, metering.Errorf(metering.CodeProviderDown, "Tally did not answer").Because(providers.Redact(err))
	}
	defer response.Body.Close()
	status = response.StatusCode
	wait := providers.RetryAfter(response.Header.Get("Retry-After"), time.Time{})
	switch {
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return status, providers.Advised(metering.Errorf(metering.CodeProviderDown, "Tally answered %d", status), wait, false)
	case status >= http.StatusBadRequest:
		return status, providers.Advised(metering.Errorf(metering.CodeProviderRefuse, "Tally refused with %d", status), wait, status != http.StatusUnauthorized)
	case into == nil:
		return status, nil
	}
	return status, json.NewDecoder(response.Body).Decode(into)
}
