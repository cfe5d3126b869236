// Package providers holds what every billing provider shares; each provider is
// a package below it. It owns the one guard between a tenant's URL and the
// network, and stores nothing.
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

// Guard decides which of the URLs that tenants supply may be called.
type Guard struct {
	// AllowLoopback lets http and https reach this machine. For development only.
	AllowLoopback bool
}

// CheckURL names the rule that a tenant's URL breaks; location says where it
// was given. That the host's addresses are allowed is checked at each dial,
// after name resolution, because they can change at any time.
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

// Loopback says whether a host is this machine.
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

// azureWireServer answers every virtual machine in Azure, from a public address
// (https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
var azureWireServer = netip.MustParsePrefix("168.63.129.16/32")

func (g Guard) guardian() *ssrf.Guardian {
	options := []ssrf.Option{ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureWireServer)}
	if g.AllowLoopback {
		options = append(options,
			ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")),
			ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")))
	}
	return ssrf.New(options...)
}

// Forbidden says whether err came from the guard rather than the network.
func Forbidden(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
