// Package stripe is the billing provider Stripe: it says where a customer's
// usage goes there, sends one stored report at a time, reads back what Stripe
// counted, and verifies Stripe's events. It decides neither what to send nor
// when nor how often, and stores nothing. It is the only importer of stripe-go.
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

// Timeout is how long one call may take, from the name's resolution to the end
// of the answer. Whoever leases a report must lease it for longer.
const Timeout = 20 * time.Second

const (
	maxAnswerBytes = 8 << 20
	maxPages       = 100 // of 100 objects each
	keptObjects    = 4096
)

// Client calls Stripe with the keys of many tenants: each call carries its
// own, and none is kept.
type Client struct {
	backend stripego.Backend
	meters  *lru.Cache[objectKey, meter]
	prices  *lru.Cache[objectKey, shownPrice]
	trusted bool // with live keys
}

// New returns a client of the API at baseURL; "" is Stripe's own. The caller's
// is the only retry loop. (net/http repeats a call by itself where a connection
// that it had kept breaks before any answer: the same bytes with the same
// idempotency key, within the same timeout.)
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
		LeveledLogger:     &stripego.LeveledLogger{Level: stripego.LevelNull}, // the default prints answers, which echo data
		MaxNetworkRetries: new(int64(0)),
	}
	if baseURL != "" {
		config.URL = new(baseURL)
	}
	meters, _ := lru.New[objectKey, meter](keptObjects) // fails only for a size below 1
	prices, _ := lru.New[objectKey, shownPrice](keptObjects)
	return &Client{stripego.GetBackendWithConfig(stripego.APIBackend, config), meters, prices, trusted(baseURL)}
}

// exchange is what was asked, and what stripe-go loses of an answer whose body
// is not Stripe's JSON.
type exchange struct {
	status   int
	header   http.Header
	fraction bool // a value with decimals was sent
}

type exchangeKey struct{}

// open gives ctx a place for the exchange that a call made with it will be.
func open(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// observed fills in the exchange and bounds the answer.
type observed struct{ next http.RoundTripper }

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

// raw is an answer as it came: stripe-go's own structs hold quantities as
// floats and lack the fields of later API versions.
type raw struct{ json.RawMessage }

func (raw) SetLastResponse(*stripego.APIResponse) {}

// read gets what path names and decodes it.
func (c *Client) read(ctx context.Context, key, path string, query *form.Values, into any) error {
	return c.readAs(ctx, key, "", path, query, into)
}

// readAs is read in the words of a version of the API; "" is stripe-go's.
func (c *Client) readAs(ctx context.Context, key, version, path string, query *form.Values, into any) error {
	ctx, x := open(ctx)
	var body raw
	err := c.backend.CallRaw(http.MethodGet, path, key, query, &stripego.Params{Context: ctx, Headers: in(version)}, &body)
	if _, err := judge(x, err); err != nil {
		return err
	}
	if json.Unmarshal(body.RawMessage, into) != nil {
		return metering.Errorf(metering.CodeProviderDown, "Stripe's answer could not be read")
	}
	return nil
}

// in asks for a version of the API.
func in(version string) http.Header {
	if version == "" {
		return nil
	}
	return http.Header{"Stripe-Version": {version}}
}

// list reads every page of what path lists.
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

// query makes URL parameters of names and values in turn.
func query(pairs ...string) *form.Values {
	values := &form.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// reference is an object's id, also where Stripe was told to expand the object.
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

// instant reads Stripe's Unix seconds; 0 and an absent field are no instant.
func instant(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
