package api

import (
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

const maxIssuerBody = 1 << 20

// maxIssuerCalls is the maximum number of concurrent calls to OIDC issuers. One tenant gets at most half of them, and so
// does one host. An issuer that never responds therefore leaves capacity for other tenants and other issuers.
const maxIssuerCalls = 32

// issuers calls the OIDC issuers of tenants.
type issuers struct {
	client  *http.Client
	tenants *fair.Shares[metering.TenantID]
	hosts   *fair.Shares[string]
}

func newIssuers(client *http.Client) *issuers {
	return &issuers{client, fair.NewShares[metering.TenantID](maxIssuerCalls), fair.NewShares[string](maxIssuerCalls)}
}

// clientOf returns the client that calls a tenant's issuer.
func (i *issuers) clientOf(tenant metering.TenantID) *http.Client {
	client := *i.client
	client.Transport = issuerCalls{client.Transport, i, tenant}
	return &client
}

// issuerCalls limits a tenant's concurrent calls to issuers. It also limits the size of responses, because responses
// are read into memory.
type issuerCalls struct {
	http.RoundTripper

	issuers *issuers
	tenant  metering.TenantID
}

func (c issuerCalls) RoundTrip(r *http.Request) (*http.Response, error) {
	end, err := c.begin(r.URL.Host)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	response, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	response.Body = issuerAnswer{io.LimitReader(response.Body, maxIssuerBody), response.Body, end}
	return response, nil
}

// begin counts a call until end is called. It returns an error if too many calls of the tenant or to the host are in
// progress.
func (c issuerCalls) begin(host string) (end func(), err error) {
	if !c.issuers.tenants.Take(c.tenant, 1) {
		return nil, fmt.Errorf("too many calls of %s to issuers are in progress", c.tenant)
	}
	if !c.issuers.hosts.Take(host, 1) {
		c.issuers.tenants.Give(c.tenant, 1)
		return nil, fmt.Errorf("too many calls to %s are in progress", host)
	}
	return sync.OnceFunc(func() {
		c.issuers.hosts.Give(host, 1)
		c.issuers.tenants.Give(c.tenant, 1)
	}), nil
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
