package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/client"
)

// The event types of the demo.
const (
	apiRequest = "api_request"
	completion = "completion"
	image      = "image"
)

// customer is a customer of a demo tenant.
type customer struct {
	externalID, name string
	size             int    // activity at its maximum; 0: no usage
	stripeID         string // "": not at Stripe
}

// customers have names with the characters and scripts that occur in practice.
var customers = []customer{
	{"acme", "Acme Corporation", 40, ""},
	{"initech/eu-west", "Initech Ltd. (EU)", 25, ""},
	{"žižkov-café", "Kavárna na Žižkově, s.r.o.", 6, ""},
	{"株式会社東京計量", "株式会社東京計量", 18, ""},
	{"o'hara & söhne 100%", "O'Hara & Söhne \"100 %\" GmbH", 12, ""},
	{"=SUM(A1:A9)", "=SUM(A1:A9) Spreadsheets Inc.", 3, ""},
	{"مترو-الرياض", "مترو الرياض 🚇", 9, ""},
	{"quiet", "Quiet & Co.", 0, ""},
}

// meter is a meter of a demo tenant, with its price.
type meter struct {
	client.CreateMeter
	price client.SetPricing // empty: no price
}

// meters are the meters of the first tenant. The answers in tries depend on the price of the first meter.
var meters = []meter{
	{
		client.CreateMeter{Slug: "api-calls", EventType: apiRequest, Name: new("API calls")},
		client.SetPricing{BasePrice: number("25"), IncludedUnits: number("1000"), OverageRate: number("0.02")},
	},
	{
		client.CreateMeter{Slug: "tokens", EventType: completion, Name: new("Tokens"), Unit: new("tokens"), GroupBy: &[]string{"model"}},
		client.SetPricing{IncludedUnits: number("50000"), OverageRate: number("0.0000125")},
	},
	{
		client.CreateMeter{Slug: "images", EventType: image, Name: new("Images"), Aggregation: new(client.CreateMeterAggregationCount)},
		client.SetPricing{OverageRate: number("0.04")},
	},
}

// number returns a pointer to a JSON number.
func number(literal string) *json.Number { return new(json.Number(literal)) }

// month is the duration of the usage of the first tenant.
const month = 31 * 24 * time.Hour

// usage returns the customers' events of the full hours from start to now. The events of an hour are the
// same in every run.
func usage(of []customer, start, now time.Time) []client.Event {
	var events []client.Event
	last := now.UTC().Truncate(time.Hour)
	for at := start.UTC().Truncate(time.Hour); at.Before(last); at = at.Add(time.Hour) {
		for _, c := range of {
			events = append(events, usageOf(c.externalID, c.size*busy(at)/100, at)...)
		}
	}
	return events
}

// busy returns the activity in an hour as a percentage of the maximum: high in office hours, lower at night
// and on weekends.
func busy(hour time.Time) int {
	percent := 20
	if h := hour.Hour(); h >= 7 && h < 19 {
		percent = 100 - 5*max(h-13, 13-h)
	}
	if day := hour.Weekday(); day == time.Saturday || day == time.Sunday {
		percent /= 3
	}
	return percent
}

// usageOf returns one customer's events of one hour.
func usageOf(customer string, activity int, hour time.Time) []client.Event {
	if activity == 0 {
		return nil
	}
	seed := fnv.New64a()
	seed.Write([]byte(customer))
	random := rand.New(rand.NewPCG(seed.Sum64(), uint64(hour.Unix())))
	var events []client.Event
	add := func(kind string, value int, properties map[string]any) {
		events = append(events, client.Event{
			CustomerId: customer, EventType: kind, Properties: &properties,
			Timestamp:      new(hour.Add(time.Duration(random.IntN(3600)) * time.Second)),
			Value:          number(strconv.Itoa(value)),
			IdempotencyKey: new(fmt.Sprintf("demo/%s/%s/%d", customer, hour.Format("2006-01-02T15"), len(events))),
		})
	}
	add(apiRequest, activity+random.IntN(activity+1), map[string]any{"region": pick(random, "eu", "us", "ap")})
	for range 1 + activity/16 {
		add(completion, 20*activity+random.IntN(40*activity+1), map[string]any{"model": pick(random, "small", "small", "medium", "large")})
	}
	if random.IntN(40) < activity {
		add(image, 1, map[string]any{"size": pick(random, "512", "1024")})
	}
	return events
}

// pick returns a random one of the texts.
func pick(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }
