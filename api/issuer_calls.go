package api

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/odometer-metering/odometer/db/fair"
)

const maxIssuerBody = 1 << 20

// maxIssuerCalls is the maximum number of concurrent calls to OIDC issuers. One host gets at most half of them, so
// that an issuer that never responds leaves capacity for other issuers.
const maxIssuerCalls = 32

// issuerCalls limits the concurrent calls to issuers. It also limits the size of responses, because responses are
// read into memory.
type issuerCalls struct {
	http.RoundTripper
	shares *fair.Shares[string] // by host
}

func (c issuerCalls) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Host
	if !c.shares.Take(host, 1) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("too many calls to %s are in progress", host)
	}
	end := sync.OnceFunc(func() { c.shares.Give(host, 1) })
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	response.Body = issuerAnswer{io.LimitReader(response.Body, maxIssuerBody), response.Body, end}
	return response, nil
}

// issuerAnswer is the body of an issuer's response. The call counts as concurrent until Close.
type issuerAnswer struct {
	io.Reader
	body io.Closer
	end  func()
}

func (a issuerAnswer) Close() error {
	defer a.end()
	return a.body.Close()
}

// newIssuers returns the client that calls tenants' issuers.
func newIssuers(client *http.Client) *http.Client {
	client.Transport = issuerCalls{client.Transport, fair.NewShares[string](maxIssuerCalls)}
	return client
}
