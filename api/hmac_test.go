package api_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
)

// signer signs requests with an HMAC secret.
type signer struct {
	id     string // of the secret
	tenant metering.TenantID
	secret string
	now    func() time.Time
}

// newSigner creates an HMAC secret with this scope.
func (b *bundle) newSigner(t testing.TB, scope metering.Scope) signer {
	t.Helper()
	a := b.send(t, "POST", "/v1/hmac-secrets", fmt.Sprintf(`{"name":"a service","scope":%q}`, scope))
	require.Equal(t, 201, a.status, a.body)
	var made client.CreatedHMACSecret
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	return signer{made.Id, b.tenant.ID, made.Secret, b.now}
}

// revoke revokes the secret.
func (s signer) revoke(t testing.TB, b *bundle) {
	t.Helper()
	require.Equal(t, 200, b.send(t, "POST", "/v1/hmac-secrets/"+s.id+"/revoke", "").status)
}

// sign returns the headers for a body, with a new request id.
func (s signer) sign(body string) []string { return s.signAt(s.now(), rand.Text(), body) }

// signAt returns the headers for a body, with this time and request id.
func (s signer) signAt(at time.Time, id, body string) []string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(s.secret))
	fmt.Fprintf(mac, "%s:%s:%s", timestamp, id, body)
	return []string{
		"Authorization: HMAC v1:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		"X-Timestamp: " + timestamp, "X-Request-Id: " + id, "X-Tenant-Id: " + s.tenant.String(),
	}
}

const (
	hello        = `{"event_type":"call","customer_id":"acme","value":2}`
	notTheirs    = "the signature does not match this request and a valid secret of this tenant"
	usedBefore   = "this X-Request-Id was already used: send a new one with every attempt"
	wrongHeader  = "Authorization must be HMAC v2: or HMAC v1: followed by the HMAC-SHA256 in base64"
	wrongTime    = "X-Timestamp must be Unix time in seconds"
	lateOrEarly  = "X-Timestamp must be within 300 seconds of the server's clock"
	wrongID      = "X-Request-Id must be 1 to 128 letters, digits, dots, underscores and hyphens"
	wrongTenant  = "X-Tenant-Id must be a tenant's id, such as ten_42"
	noCredential = "the credentials are missing or invalid"
)

func TestSignedRequestActsForItsTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	s := b.newSigner(t, metering.ScopeAdmin)
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, s.sign(hello)...).status)
	batch := `{"events":[` + hello + `]}`
	require.Equal(t, 200, b.send(t, "POST", "/v1/events/batch", batch, s.sign(batch)...).status)
	a := b.send(t, "GET", "/v1/usage/total?customer=acme", "", s.sign("")...)
	require.JSONEq(t, `{"total":4}`, a.body)
	const customer = `{"external_id":"signed"}`
	headers := s.sign(customer)
	a = b.send(t, "POST", "/v1/customers", customer, headers...)
	require.Equal(t, 201, a.status, a.body)
	require.Equal(t, headers[2], "X-Request-Id: "+a.header.Get("X-Request-Id"))
	log := b.send(t, "GET", "/v1/audit-log?page_size=1", "")
	require.Contains(t, log.body, `"actor":"`+s.id+`"`)
}

// TestSignatureEqualsOutputOfOpenSSL compares a signature with the output of OpenSSL:
// printf '%s' '1700000000:req-1:{"a":1}' | openssl dgst -sha256 -hmac hms_secret -binary | base64
func TestSignatureEqualsOutputOfOpenSSL(t *testing.T) {
	t.Parallel()
	s := signer{secret: "hms_secret"}
	require.Equal(t, "Authorization: HMAC v1:byYIS86iAvp8uh7apYH3I3ofdvNDVR213nZs3SB0z4U=", s.signAt(time.Unix(1700000000, 0), "req-1", `{"a":1}`)[0])
}

func TestErrorOfSignedRequestNamesMissingOrWrongHeader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	now := b.now()
	good := s.sign(hello)[0]
	for name, c := range map[string]struct{ header, detail string }{
		"no Authorization":       {"Authorization: ", noCredential},
		"no signature":           {"Authorization: HMAC", wrongHeader},
		"no version":             {"Authorization: " + strings.Replace(good[len("Authorization: "):], "v1:", "", 1), wrongHeader},
		"another version":        {"Authorization: HMAC v3:" + good[len("Authorization: HMAC v1:"):], wrongHeader},
		"not base64":             {"Authorization: HMAC v1:***", wrongHeader},
		"base64 without padding": {strings.TrimRight(good, "="), wrongHeader},
		"base64 for URLs":        {"Authorization: HMAC v1:" + strings.Repeat("_-", 21) + "_=", wrongHeader},
		"too short":              {"Authorization: HMAC v1:c2lnbmF0dXJl", wrongHeader},
		"too long":               {"Authorization: HMAC v1:" + strings.Repeat("A", 4000), wrongHeader},
		"no timestamp":           {"X-Timestamp: ", wrongTime},
		"a date":                 {"X-Timestamp: " + now.Format(time.RFC3339), wrongTime},
		"milliseconds":           {fmt.Sprintf("X-Timestamp: %d", now.UnixMilli()), wrongTime},
		"a fraction":             {fmt.Sprintf("X-Timestamp: %d.5", now.Unix()), wrongTime},
		"a sign":                 {fmt.Sprintf("X-Timestamp: +%d", now.Unix()), wrongTime},
		"a negative timestamp":   {"X-Timestamp: -1", wrongTime},
		"huge":                   {"X-Timestamp: " + strings.Repeat("9", 40), wrongTime},
		"far in the future":      {"X-Timestamp: 999999999999", lateOrEarly},
		"zero":                   {"X-Timestamp: 0", lateOrEarly},
		"late":                   {fmt.Sprintf("X-Timestamp: %d", now.Unix()-301), lateOrEarly},
		"early":                  {fmt.Sprintf("X-Timestamp: %d", now.Unix()+302), lateOrEarly},
		"no request id":          {"X-Request-Id: ", wrongID},
		"a space in it":          {"X-Request-Id: a b", wrongID},
		"a colon in it":          {"X-Request-Id: a:b", wrongID},
		"a long request id":      {"X-Request-Id: " + strings.Repeat("a", 129), wrongID},
		"no tenant":              {"X-Tenant-Id: ", wrongTenant},
		"a bare number":          {fmt.Sprintf("X-Tenant-Id: %d", b.tenant.ID), wrongTenant},
		"a zero in front":        {fmt.Sprintf("X-Tenant-Id: ten_0%d", b.tenant.ID), wrongTenant},
		"another kind of id":     {fmt.Sprintf("X-Tenant-Id: cus_%d", b.tenant.ID), wrongTenant},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.send(t, "POST", "/v1/events", hello, append(s.sign(hello), c.header)...).problem(t, 401, "unauthorized")
			require.Equal(t, c.detail, p.Detail)
		})
	}
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, s.sign(hello)...).status)
	long := s.signAt(now, strings.Repeat("a", 128), hello)
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, long...).status)
}

func TestSignatureIsValidWithinFiveMinutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	for _, c := range []struct {
		at     time.Duration
		status int
	}{{-298 * time.Second, 200}, {-301 * time.Second, 401}, {300 * time.Second, 200}, {302 * time.Second, 401}} {
		a := b.send(t, "POST", "/v1/events", hello, s.signAt(b.now().Add(c.at), rand.Text(), hello)...)
		require.Equal(t, c.status, a.status, "%s: %s", c.at, a.body)
	}
}

// TestAllInvalidSignaturesGetSameResponse checks that every well-formed, invalid signature gets the same response.
func TestAllInvalidSignaturesGetSameResponse(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	s, other := b.newSigner(t, metering.ScopeAdmin), theirs.newSigner(t, metering.ScopeAdmin)
	nobody, unknown, stranger, guess := other, s, s, s
	nobody.tenant = dbtest.Tenant(t, b.store).ID // has no secret
	unknown.tenant = 1 << 60
	stranger.secret = other.secret
	guess.secret = "hms_guess"
	spoofed := other
	spoofed.tenant = s.tenant
	cases := map[string][]string{
		"another tenant's secret": stranger.sign(hello), "another tenant's id": spoofed.sign(hello), "a guess": guess.sign(hello),
		"a tenant without secrets": nobody.sign(hello), "no such tenant": unknown.sign(hello),
		"another body": s.sign(hello + " "), "no body": s.sign(""),
		"another id":        append(s.sign(hello), "X-Request-Id: another"),
		"another timestamp": append(s.sign(hello), fmt.Sprintf("X-Timestamp: %d", b.now().Unix()-1)),
		"zeros":             append(s.sign(hello), "Authorization: HMAC v1:"+base64.StdEncoding.EncodeToString(make([]byte, 32))),
	}
	revoked := b.newSigner(t, metering.ScopeAdmin)
	revoked.revoke(t, b)
	cases["revoked"] = revoked.sign(hello)
	for name, headers := range cases {
		t.Run(name, func(t *testing.T) {
			p := b.send(t, "POST", "/v1/events", hello, headers...).problem(t, 401, "unauthorized")
			require.Equal(t, notTheirs, p.Detail)
		})
	}
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, s.sign(hello)...).status)
}

func TestSignatureOfExpiredSecretIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	_, err := dbtest.Conn(t).Exec(t.Context(), `update credentials set expires_at = $2 where tenant_id = $1 and kind = 'hmac_secret'`, b.tenant.ID, b.now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.sign("")...).status)
	b.ahead.Store(int64(time.Hour + time.Second))
	b.send(t, "GET", "/v1/meters", "", s.sign("")...).problem(t, 401, "unauthorized")
	b.newSigner(t, metering.ScopeAdmin)
	b.newSigner(t, metering.ScopeAdmin) // the expired secret does not count towards the maximum
}

func TestSignedRequestIDIsAcceptedOnceAcrossReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.replica(t, func(*api.Deps) {})
	s := b.newSigner(t, metering.ScopeAdmin)
	headers := s.sign("")
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", headers...).status)
	for _, replica := range []*bundle{r, b} {
		p := replica.send(t, "GET", "/v1/meters", "", headers...).problem(t, 401, "unauthorized")
		require.Equal(t, usedBefore, p.Detail)
	}
	fresh := s.signAt(b.now().Add(time.Second), headers[2][len("X-Request-Id: "):], "")
	r.send(t, "GET", "/v1/meters", "", fresh...).problem(t, 401, "unauthorized")

	theirs := setup(t)
	same := theirs.newSigner(t, metering.ScopeAdmin).signAt(b.now(), headers[2][len("X-Request-Id: "):], "")
	require.Equal(t, 200, theirs.send(t, "GET", "/v1/meters", "", same...).status, "another tenant's ids are others")
}

func TestConcurrentSignedRepeatsAreAcceptedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replicas := []*bundle{b, b.replica(t, func(*api.Deps) {}), b.replica(t, func(*api.Deps) {})}
	s := b.newSigner(t, metering.ScopeAdmin)
	for range 10 {
		headers := s.sign(hello)
		var taken atomic.Int64
		var clients sync.WaitGroup
		for i := range 12 {
			clients.Go(func() {
				if replicas[i%3].send(t, "POST", "/v1/events", hello, headers...).status == http.StatusOK {
					taken.Add(1)
				}
			})
		}
		clients.Wait()
		require.Equal(t, int64(1), taken.Load())
	}
}

// TestReplicasWithDifferentClocksRefuseRepeatedRequest checks that a repeat is refused although clocks differ. By the
// clock of one replica the request id has expired. By the clock of another the request is still fresh.
func TestReplicasWithDifferentClocksRefuseRepeatedRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.replica(t, func(*api.Deps) {})
	s := b.newSigner(t, metering.ScopeAdmin)
	headers := s.sign("")
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", headers...).status)
	r.ahead.Store(int64(302 * time.Second))
	p := r.send(t, "GET", "/v1/meters", "", headers...).problem(t, 401, "unauthorized")
	require.Equal(t, lateOrEarly, p.Detail)
	_, err := b.store.RequestIDs.Sweep(t.Context(), r.now().Add(-10*time.Minute), 1000)
	require.NoError(t, err)
	p = b.send(t, "GET", "/v1/meters", "", headers...).problem(t, 401, "unauthorized")
	require.Equal(t, usedBefore, p.Detail)
}

func TestRequestIDCanBeReusedAfterSignatureExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	signed := b.now()
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.signAt(signed, "an-id", "")...).status)
	b.ahead.Store(int64(290 * time.Second))
	b.send(t, "GET", "/v1/meters", "", s.signAt(b.now(), "an-id", "")...).problem(t, 401, "unauthorized")
	b.ahead.Store(int64(301 * time.Second))
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.signAt(b.now(), "an-id", "")...).status)
}

func TestInvalidSignatureDoesNotUseUpRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	now := b.now()
	b.send(t, "POST", "/v1/events", hello, s.signAt(now, "an-id", "another body")...).problem(t, 401, "unauthorized")
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, s.signAt(now, "an-id", hello)...).status)
}

func TestBodyOfGETIsNeitherSignedNorRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "a body", s.sign("")...).status)
	b.send(t, "GET", "/v1/meters", "a body", s.sign("a body")...).problem(t, 401, "unauthorized")
}

func TestSignatureCoversEveryByteOfBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	binary := make([]byte, 4096)
	rand.Read(binary)
	for _, body := range []string{string(binary), "\x00", "\xff\xfe", "a:b\r\n:c", `{"external_id":"é"}`, ""} {
		for _, path := range []string{"/v1/customers", "/v1/events", "/v1/events/batch"} {
			a := b.send(t, "POST", path, body, s.sign(body)...)
			require.NotEqual(t, 401, a.status, "%s %q", path, body)
			require.Less(t, a.status, 500)
		}
	}
	b.send(t, "POST", "/v1/customers", "not JSON", s.sign("CANARY")...).problem(t, 401, "unauthorized")
}

func TestSizeOfSignedBodyIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	for path, most := range map[string]int{
		"/v1/customers": 1 << 20, "/v1/events": 8 << 20, "/v1/events/batch": 8 << 20, "/v1/quotas/reservations/r/settle": 8 << 20,
	} {
		body, detail := strings.Repeat(" ", most+1), fmt.Sprintf("the body must have at most %d bytes", most)
		require.Equal(t, detail, b.send(t, "POST", path, body, s.sign(body)...).problem(t, 413, "too_large").Detail, path)
		require.Equal(t, detail, b.send(t, "POST", path, body).problem(t, 413, "too_large").Detail, path)
		body = body[:most-2] + "{}"
		b.send(t, "POST", path, body, s.sign(body)...).problem(t, 422, "invalid")
		b.send(t, "POST", path, body).problem(t, 422, "invalid")
	}
	full := b.replica(t, func(d *api.Deps) { d.BodyBytes = 100 })
	for _, path := range []string{"/v1/customers", "/v1/events"} {
		full.send(t, "POST", path, hello, s.sign(hello)...).problem(t, 503, "overloaded")
	}
	for range 6 { // refused and finished requests have released their memory
		body := `{"events":[` + hello + `]}` + strings.Repeat(" ", 8<<20-1000)
		require.Equal(t, 200, b.send(t, "POST", "/v1/events/batch", body, s.sign(body)...).status)
	}
}

func TestTwoSecretsAreValidAndThirdIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	older, newer := b.newSigner(t, metering.ScopeReadOnly), b.newSigner(t, metering.ScopeIngestOnly)
	p := b.send(t, "POST", "/v1/hmac-secrets", `{"name":"one too many","scope":"admin"}`).problem(t, 409, "conflict")
	require.Equal(t, "the tenant already has 2 valid HMAC secrets, the maximum; revoke one first", p.Detail)

	statuses := func(s signer) (read, write int) {
		return b.send(t, "GET", "/v1/meters", "", s.sign("")...).status, b.send(t, "POST", "/v1/events", hello, s.sign(hello)...).status
	}
	read, write := statuses(older)
	require.Equal(t, []int{200, 403}, []int{read, write})
	read, write = statuses(newer)
	require.Equal(t, []int{403, 200}, []int{read, write})

	older.revoke(t, b)
	read, write = statuses(older)
	require.Equal(t, []int{401, 401}, []int{read, write})
	_, write = statuses(newer)
	require.Equal(t, 200, write)
	b.newSigner(t, metering.ScopeAdmin)
}

func TestConcurrentRequestsCreateAtMostTwoSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if b.send(t, "POST", "/v1/hmac-secrets", `{"name":"s","scope":"admin"}`).status == http.StatusCreated {
				made.Add(1)
			}
		})
	}
	clients.Wait()
	require.Equal(t, int64(metering.MaxHMACSecrets), made.Load())
}

func TestASecretIsShownOnceAndStoredSealed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeReadOnly)
	require.Regexp(t, `^hms_[0-9A-Za-z]{43}$`, s.secret)
	listed := b.send(t, "GET", "/v1/hmac-secrets", "")
	require.Contains(t, listed.body, `"last_four":"`+s.secret[len(s.secret)-4:]+`"`)
	require.NotContains(t, listed.body, s.secret)
	require.NotContains(t, listed.body, `"secret"`)

	var sealed []byte
	err := dbtest.Conn(t).QueryRow(t.Context(), `select secret from credentials where tenant_id = $1 and kind = 'hmac_secret'`, b.tenant.ID).Scan(&sealed)
	require.NoError(t, err)
	require.NotContains(t, string(sealed), s.secret)
	opened, err := b.deps.Keyring.Open(b.tenant.ID, seal.SigningSecret, sealed)
	require.NoError(t, err)
	require.Equal(t, s.secret, string(opened))

	theirs := setup(t)
	theirs.send(t, "POST", "/v1/hmac-secrets/"+s.id+"/revoke", "").problem(t, 404, "not_found")
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.sign("")...).status)
}

func TestExpiredRequestIDsAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	long := b.now().Add(-time.Hour)
	for i := range 150 {
		claimed, err := b.store.RequestIDs.Claim(t.Context(), b.tenant.ID, fmt.Sprintf("old-%d", i), long, long)
		require.NoError(t, err)
		require.True(t, claimed)
	}
	conn := dbtest.Conn(t)
	for range 200 {
		require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.sign("")...).status)
	}
	dbtest.Eventually(t, func() error {
		var old, live int
		err := conn.QueryRow(t.Context(), `
			select count(*) filter (where request_id like 'old-%'), count(*) filter (where request_id not like 'old-%')
			from request_ids where tenant_id = $1`, b.tenant.ID).Scan(&old, &live)
		require.NoError(t, err)
		require.Equal(t, 200, live)
		if old > 0 {
			return fmt.Errorf("%d expired ids are left", old)
		}
		return nil
	})
}
