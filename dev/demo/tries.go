package main

import (
	"fmt"
	"io"
	"strings"
	"text/template"
)

// try is a command and the answer it gives, on any day and however often: the
// customer is a new one each time.
type try struct{ Says, Command, Answer string }

// tries stand in README.md word for word; a test runs them. 1250 calls cost
// 25 + (1250 - 1000) × 0.02 = 30.
var tries = []try{
	{
		"Send an event. Send it again, and it counts as a duplicate.",
		`customer=hello-$(date +%s)
curl -s $ODOMETER_URL/v1/events -H "Authorization: Bearer $ODOMETER_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_id":"'$customer'","event_type":"api_request","value":1250,"idempotency_key":"'$customer'"}'`,
		`{"accepted":1,"rejected":0,"duplicates":0,"warnings":[],"errors":[]}`,
	},
	{
		"It is in every total already.",
		`curl -s "$ODOMETER_URL/v1/usage/total?customer=$customer" -H "Authorization: Bearer $ODOMETER_KEY"`,
		`{"total":1250}`,
	},
	{
		"Bill it: 25 + (1250 - 1000) × 0.02. Acknowledged means that the receiver has it.",
		`curl -s $ODOMETER_URL/v1/billing/sync -H "Authorization: Bearer $ODOMETER_KEY" -H 'Content-Type: application/json' \
  -d '{"customer_external_id":"'$customer'"}' | grep -o '"usage":1250,[^{}]*"sequence":[0-9]*'`,
		`"usage":1250,"unit_price":0.02,"amount":30,"currency":"USD","status":"acknowledged","sequence":1`,
	},
}

var explanation = template.Must(template.New("explanation").Funcs(template.FuncMap{"indent": indent, "next": next}).Parse(`API           {{.BaseURL}}
{{with .TemporalUIURL}}Temporal UI   {{.}}
{{end}}Webhooks got  {{.ReceiverURL}}/received
Admin key     {{.AdminKey}}

Try it:

   export ODOMETER_URL={{.BaseURL}} ODOMETER_KEY={{.AdminKey}}
{{range $i, $try := .Tries}}
{{next $i}}. {{.Says}}

{{indent .Command}}
   answers {{.Answer}}
{{end}}`))

func next(i int) int { return i + 1 }

func indent(lines string) string { return "   " + strings.ReplaceAll(lines, "\n", "\n   ") }

// explain says where everything is and what to try.
func explain(c config, out io.Writer) error {
	err := explanation.Execute(out, struct {
		config
		Tries []try
	}{c, tries})
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
