package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

// try is a command of README.md and its expected output. Each run creates a new customer, so the output does not change
// from run to run.
type try struct{ Says, Command, Answer string }

// tries are also in README.md, word for word, and a test runs them. 1250 calls cost 25 + (1250 - 1000) ×
// 0.02 = 30.
var tries = []try{
	{
		"Send an event. Send it again, and it counts as a duplicate.",
		`customer=hello-$(date +%s)
curl -s $ODOMETER_URL/v1/events -H "Authorization: Bearer $ODOMETER_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_id":"'$customer'","event_type":"api_request","value":1250,"idempotency_key":"'$customer'"}'`,
		`{"accepted":1,"rejected":0,"duplicates":0,"conflicts":0,"warnings":[],"errors":[]}`,
	},
	{
		"It is in every total already.",
		`curl -s "$ODOMETER_URL/v1/usage/total?customer=$customer&meter=api-calls" -H "Authorization: Bearer $ODOMETER_KEY"`,
		`{"total":1250}`,
	},
	{
		"Bill it: 25 + (1250 - 1000) × 0.02. Accepted means that the receiver has it.",
		`curl -s $ODOMETER_URL/v1/billing/sync -H "Authorization: Bearer $ODOMETER_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_external_id":"'$customer'"}' | grep -o '"usage":1250,[^{}]*"state":"[a-z_]*"'`,
		`"usage":1250,"unit_price":0.02,"amount":30,"currency":"USD","kind":"statement","number":1,"state":"accepted"`,
	},
}

// stripeTries continue tries with the same customer. A usage record has whole units, at 2 cents each.
var stripeTries = []try{
	{
		"Subscribe the customer to a price at Stripe, and link it in the second tenant.",
		`curl -s -o /dev/null $STRIPE_URL/_seed -d '{"account":'$STRIPE_ACCOUNT',"customers":[{"id":"cus_'$customer'"}],
  "subscriptions":[{"customer":"cus_'$customer'","items":[{"id":"si_'$customer'","price":"price_calls"}]}]}'
curl -s -o /dev/null -w '%{http_code}\n' $ODOMETER_URL/v1/customers -H "Authorization: Bearer $ODOMETER_STRIPE_KEY" \
  -H 'Content-Type: application/json' -d '{"external_id":"'$customer'","billing_provider_id":"cus_'$customer'"}'`,
		`201`,
	},
	{
		"Send usage and sync. Counted means that Stripe was seen to have counted it; it takes whole units.",
		`curl -s -o /dev/null $ODOMETER_URL/v1/events -H "Authorization: Bearer $ODOMETER_STRIPE_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_id":"'$customer'","event_type":"api_request","value":1250.4,"idempotency_key":"'$customer'"}'
curl -s $ODOMETER_URL/v1/billing/sync -H "Authorization: Bearer $ODOMETER_STRIPE_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_external_id":"'$customer'"}' | grep -o '"usage":1250.4,[^{}]*"method":"[a-z_]*"'`,
		`"usage":1250.4,"unit_price":0.02,"amount":25,"currency":"USD","kind":"quantity","number":1,"state":"counted","method":"usage_record"`,
	},
	{
		"This is what Stripe would bill, in cents.",
		`curl -s $STRIPE_URL/_state | grep -o '"item":"si_'$customer'"[^{}]*' | grep -o '"quantity":.*'`,
		`"quantity":1250,"amount":2500,"currency":"usd"`,
	},
}

// explanation is the template of the text that explain prints.
var explanation = template.Must(template.New("explanation").Funcs(template.FuncMap{"indent": indent}).Parse(`Dashboard     {{.BaseURL}}{{with .Email}} as {{.}} with the password {{$.Password}}{{end}}
API           {{.BaseURL}}
{{with .TemporalUIURL}}Temporal UI   {{.}}
{{end}}Webhooks got  {{.ReceiverURL}}/received
Stripe bills  {{.StripeURL}}/_state (a fake that stands in for it)
Admin keys    {{.AdminKey}} of the tenant Demo
              {{.StripeAdminKey}} of the tenant Demo on Stripe

Try it:

   export ODOMETER_URL={{.BaseURL}} ODOMETER_KEY={{.AdminKey}}
{{template "tries" .Tries}}
And with Stripe:

   {{.StripeExport}}
{{template "tries" .StripeTries}}
{{- define "tries"}}{{range .}}
{{.Number}}. {{.Says}}

{{indent .Command}}
   answers {{.Answer}}
{{end}}{{end}}`))

// indent indents each line by three spaces.
func indent(lines string) string { return "   " + strings.ReplaceAll(lines, "\n", "\n   ") }

// stripeExport returns the shell variables that stripeTries need in addition.
func stripeExport(c config) string {
	a := stripeAccount(c)
	return fmt.Sprintf(`export ODOMETER_STRIPE_KEY=%s STRIPE_URL=%s STRIPE_ACCOUNT='{"id":"%s","key":"%s"}'`,
		c.StripeAdminKey, c.StripeURL, a.ID, a.Key)
}

// explain prints all addresses and the commands to try.
func explain(c config, out io.Writer) error {
	type numbered struct {
		Number int
		try
	}
	var all []numbered
	for i, t := range slices.Concat(tries, stripeTries) {
		all = append(all, numbered{i + 1, t})
	}
	err := explanation.Execute(out, struct {
		config
		StripeExport       string
		Tries, StripeTries []numbered
	}{c, stripeExport(c), all[:len(tries)], all[len(tries):]})
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
