// Package stripe is the billing provider Stripe. It finds the destinations of a customer's usage, sends one
// stored report at a time, reads the usage that Stripe has counted, and verifies Stripe's events. The
// caller decides which reports to send, when and how often. The package stores nothing, and is the only
// importer of stripe-go.
package stripe

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/form"

	"github.com/odometer-metering/odometer/metering"
)

// Timeout is the maximum duration of one call, from name resolution to the end of the response. The lease
// of a report must be longer.
const Timeout = 20 * time.Second

const (
	maxAnswerBytes = 8 << 20
	maxPages       = 100 // of 100 objects each
	keptObjects    = 4096
)

// Client calls Stripe with the keys of many tenants. Each call carries its own key, and the client stores
// none.
type Client struct {
	backend stripego.Backend
	meters  *lru.Cache[objectKey, meter]
	prices  *lru.Cache[objectKey, shownPrice]
	trusted bool // live keys can be sent to the base URL
}

// New returns a client of the API at baseURL; "" selects Stripe. The client does not retry calls. Only
// net/http repeats a call, if a reused connection breaks before the response: with the same bytes,
// idempotency key and timeout.
func New(baseURL string) *Client {
	config := &stripego.BackendConfig{
		EnableTelemetry: new(false),
		HTTPClient: &http.Client{
			Timeout:       Timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: observed{&http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				ForceAttemptHTTP2:      true,
				TLSHandshakeTimeout:    Timeout,
				MaxIdleConnsPerHost:    16,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
			}},
		},
		LeveledLogger:     &stripego.LeveledLogger{Level: stripego.LevelNull}, // the default logs data of requests
		MaxNetworkRetries: new(int64(0)),
	}
	if baseURL != "" {
		config.URL = new(baseURL)
	}
	meters, _ := lru.New[objectKey, meter](keptObjects) // fails only for a size below 1
	prices, _ := lru.New[objectKey, shownPrice](keptObjects)
	return &Client{stripego.GetBackendWithConfig(stripego.APIBackend, config), meters, prices, trusted(baseURL)}
}

// exchange holds facts of a request and its response. stripe-go drops the status and header of a response
// without valid JSON.
type exchange struct {
	status   int
	header   http.Header
	fraction bool // the request has a value with decimals
}

type exchangeKey struct{}

// withExchange returns a context that records the exchange of the call made with it.
func withExchange(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// observed records the exchange and limits the size of the response.
type observed struct{ next http.RoundTripper }

// RoundTrip sends the request, records the status and the headers of the answer, and limits the size of its body.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if x, ok := request.Context().Value(exchangeKey{}).(*exchange); ok {
		x.status, x.header = response.StatusCode, response.Header
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswerBytes), response.Body}
	return response, nil
}

// raw is an undecoded response. stripe-go's own structs hold quantities as floats and lack the fields of
// later API versions.
type raw struct{ json.RawMessage }

func (raw) SetLastResponse(*stripego.APIResponse) {}

// read gets the object at path and decodes it.
func (c *Client) read(ctx context.Context, key, path string, query *form.Values, into any) error {
	return c.readAs(ctx, key, "", path, query, into)
}

// readAs is read with a version of the API; "" selects stripe-go's version.
func (c *Client) readAs(ctx context.Context, key, version, path string, query *form.Values, into any) error {
	ctx, x := withExchange(ctx)
	var body raw
	err := c.backend.CallRaw(http.MethodGet, path, key, query, &stripego.Params{Context: ctx, Headers: versionHeader(version)}, &body)
	if _, err := judge(x, err); err != nil {
		return err
	}
	if json.Unmarshal(body.RawMessage, into) != nil {
		return metering.Errorf(metering.CodeProviderDown, "Stripe's answer could not be read")
	}
	return nil
}

// versionHeader returns the header that selects a version of the API.
func versionHeader(version string) http.Header {
	if version == "" {
		return nil
	}
	return http.Header{"Stripe-Version": {version}}
}

// list returns the objects of all pages of a list.
func list[T interface{ id() string }](ctx context.Context, c *Client, key, path string, query *form.Values) ([]T, error) {
	var all []T
	query.Set("limit", "100")
	for range maxPages {
		var page struct {
			Data    []T  `json:"data"`
			HasMore bool `json:"has_more"`
		}
		if err := c.read(ctx, key, path, query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if !page.HasMore || len(page.Data) == 0 {
			return all, nil
		}
		query.Set("starting_after", page.Data[len(page.Data)-1].id())
	}
	return nil, metering.Errorf(metering.CodeProviderRefuse, "Stripe returned more than %d objects in a list that should be short", maxPages*100)
}

// query returns URL parameters from alternating names and values.
func query(pairs ...string) *form.Values {
	values := &form.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// reference is an object's id, decoded from the id or from the expanded object.
type reference string

func (r *reference) UnmarshalJSON(text []byte) error {
	var object struct {
		ID string `json:"id"`
	}
	if len(text) == 0 || text[0] != '{' {
		return json.Unmarshal(text, (*string)(r))
	}
	err := json.Unmarshal(text, &object)
	*r = reference(object.ID)
	return err
}

// instant converts Unix seconds to a time. For 0, which is also the value of an absent field, it returns the
// zero time.
func instant(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
