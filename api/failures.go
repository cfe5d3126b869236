package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/odometer-metering/odometer/metering"
)

// defaultFailures is the number of invalid credentials that an address can send per minute.
const defaultFailures = 100

// maxProven is the maximum number of valid credentials in the cache failures.proven.
const maxProven = 10_000

// failures limits invalid credentials by address. Beyond the limit, an address can use only credentials that
// were valid at this address before. Users with such credentials can therefore continue, and guesses cost no
// database query.
type failures struct {
	limit   int
	counts  limiter
	proven  *lru.Cache[credentialName, struct{}]
	proxies []netip.Prefix
}

// credentialName is a hash that identifies a credential at an address.
type credentialName [sha256.Size]byte

func newFailures(deps Deps, counts limiter) (*failures, error) {
	proven, err := lru.New[credentialName, struct{}](maxProven)
	f := &failures{limit: deps.FailuresPerMinute, counts: counts, proven: proven, proxies: deps.TrustedProxies}
	if f.limit == 0 {
		f.limit = defaultFailures
	}
	return f, err
}

// guard authenticates a request unless its address has sent too many invalid credentials.
func (f *failures) guard(ctx huma.Context, r *http.Request, authenticate func(huma.Context) (Principal, error)) (Principal, error) {
	address := f.addressOf(r)
	name := nameOf(address, r.Header)
	if err := f.refuse(address, name); err != nil {
		return Principal{}, err
	}
	principal, err := authenticate(ctx)
	return principal, f.note(ctx.Context(), address, name, err)
}

// refuse returns an error if the address has sent too many invalid credentials, unless this credential was valid
// at the address before.
func (f *failures) refuse(address string, name credentialName) error {
	if a := f.counts.peek(failuresOf(address), f.limit); !a.allowed && !f.proven.Contains(name) {
		return tooManyFailures(a)
	}
	return nil
}

// note caches a valid credential, and counts an invalid credential against the limit of the address. It returns err,
// or an error about the limit. A request also counts if endSlow has ended its body, because the credential of such a
// request is never verified.
func (f *failures) note(ctx context.Context, address string, name credentialName, err error) error {
	switch {
	case err == nil:
		f.proven.Add(name, struct{}{})
	case metering.CodeOf(err) == metering.CodeUnauthorized, errors.Is(err, errForged):
		if a := f.counts.take(ctx, failuresOf(address), f.limit); !a.allowed {
			return tooManyFailures(a)
		}
	case errors.Is(err, errEnded):
		f.counts.take(ctx, failuresOf(address), f.limit)
	}
	return err
}

func failuresOf(address string) string { return "failures:" + address }

func tooManyFailures(a allowance) error {
	return tooMany(a, "too many invalid credentials from this address")
}

// nameOf returns the name of a credential at an address. A signature differs for each request, so the tenant id
// identifies an HMAC credential instead.
func nameOf(address string, header http.Header) credentialName {
	authorization := header.Get("Authorization")
	if scheme, _, _ := strings.Cut(authorization, " "); strings.EqualFold(scheme, "HMAC") {
		authorization = "HMAC " + header.Get("X-Tenant-Id")
	}
	return hashName(address, authorization, header.Get("Cookie"))
}

func hashName(parts ...string) credentialName {
	return sha256.Sum256([]byte(strings.Join(parts, "\n")))
}

// addressOf returns the prefix of the client's address: the nearest address that is not a trusted proxy.
func (f *failures) addressOf(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && f.isProxy(address); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		address = hop.Unmap()
	}
	return AddressPrefix(address)
}

// AddressPrefix returns the part of an address that identifies one sender. This is an IPv4 address or a /56
// of IPv6, because providers assign a /56 to a customer.
func AddressPrefix(address netip.Addr) string {
	address = address.Unmap()
	if address.Is6() {
		return netip.PrefixFrom(address.WithZone(""), 56).Masked().String()
	}
	return address.String()
}

func (f *failures) isProxy(address netip.Addr) bool {
	for _, network := range f.proxies {
		if network.Contains(address) {
			return true
		}
	}
	return false
}
