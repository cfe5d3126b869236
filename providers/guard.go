// Package providers defines the interface of billing providers and contains their shared code. Each provider
// has its own package in a subdirectory. Guard is the only check between a tenant's URL and the network. The
// package stores nothing.
package providers

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"

	"code.dny.dev/ssrf"

	"github.com/odometer-metering/odometer/metering"
)

const maxURL = 2048

// Guard decides which tenant-supplied URLs can be called.
type Guard struct {
	// AllowLoopback permits http and https URLs on this machine. For development only.
	AllowLoopback bool
}

// CheckURL returns an error if the URL breaks a rule. location names the request's field in the error.
// CheckURL does not resolve host names, because their addresses can change at any time. Client checks the
// addresses at each dial.
func (g Guard) CheckURL(location, text string) error {
	if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		return metering.Invalid(location, "must be ASCII: percent-encode the path, and write the host in Punycode")
	}
	if len(text) > maxURL {
		return metering.Invalid(location, "must have at most %d characters", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return metering.Invalid(location, "must be an absolute URL such as https://billing.example.com/usage")
	}
	if u.User != nil {
		return metering.Invalid(location, "must not contain a user name or password")
	}
	if u.Fragment != "" {
		return metering.Invalid(location, "must not contain a fragment")
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && g.AllowLoopback && Loopback(u.Hostname())) {
		return metering.Invalid(location, "must begin with https://")
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && g.guardian().SafeAddr(address) != nil {
		return metering.Invalid(location, "must not name a private or reserved address")
	}
	return nil
}

// Loopback reports whether a host is localhost or a loopback address.
func Loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// Client returns an HTTP client for tenants' URLs: it dials only allowed
// addresses, follows no redirect, uses no proxy and gives up after timeout.
func (g Guard) Client(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: timeout, Control: g.guardian().Safe}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    timeout,
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// azureWireServer is an address of Azure's platform that every virtual machine in Azure can reach. Guard
// denies it explicitly, because it is a public address
// (https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

// guardian returns the check of the addresses that Client dials.
func (g Guard) guardian() *ssrf.Guardian {
	options := []ssrf.Option{ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureWireServer)}
	if g.AllowLoopback {
		options = append(options,
			ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")),
			ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return ssrf.New(options...)
}

// Forbidden reports whether err is a refusal of Guard, not a failure of the network.
func Forbidden(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
