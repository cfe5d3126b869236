package api_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// signV2 returns the headers for a request with a signature of version v2.
func (s signer) signV2(method, target, body string) []string {
	return s.signV2At(s.now(), rand.Text(), method, target, body)
}

// signV2At returns the headers of a request with a signature of version 2.
func (s signer) signV2At(at time.Time, id, method, target, body string) []string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(s.secret))
	digest := sha256.Sum256([]byte(body))
	fmt.Fprintf(mac, "v2\n%s\n%s\n%s\n%s\n%s\n%x", timestamp, id, s.tenant, method, target, digest)
	return []string{
		"Authorization: HMAC v2:" + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
		"X-Timestamp: " + timestamp, "X-Request-Id: " + id, "X-Tenant-Id: " + s.tenant.String(),
	}
}

// newSignerV2 creates an HMAC secret that accepts only signatures of version 2.
func (b *bundle) newSignerV2(t testing.TB, scope metering.Scope) signer {
	t.Helper()
	a := b.send(t, "POST", "/v1/hmac-secrets", fmt.Sprintf(`{"name":"a service","scope":%q,"signatures":"v2"}`, scope))
	require.Equal(t, 201, a.status, a.body)
	var made client.CreatedHMACSecret
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	require.EqualValues(t, "v2", made.Signatures)
	return signer{made.Id, b.tenant.ID, made.Secret, b.now}
}

func TestSignatureV2CoversMethodAndTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	s := b.newSigner(t, metering.ScopeAdmin)
	for _, c := range []struct{ method, target, body string }{
		{"POST", "/v1/events", hello},
		{"GET", "/v1/usage/total?customer=acme", ""},
		{"GET", "/v1/customers?page_size=1&", ""},
		{"PUT", "/v1/customers/a%2Fb%20c/upsert", `{"name":"a slash in a path"}`},
		{"POST", "/v1/hmac-secrets/" + s.id + "/rotate", ""},
	} {
		a := b.send(t, c.method, c.target, c.body, s.signV2(c.method, c.target, c.body)...)
		require.Less(t, a.status, 300, "%s %s: %s", c.method, c.target, a.body)
	}

	a := b.send(t, "POST", "/v1/customers", `{"external_id":"stays"}`)
	require.Equal(t, 201, a.status)
	replays := map[string][]string{ // each sent as PUT /v1/customers/stays/upsert {"name":"x"}
		"another method":   s.signV2("POST", "/v1/customers/stays/upsert", `{"name":"x"}`),
		"another path":     s.signV2("PUT", "/v1/customers/other/upsert", `{"name":"x"}`),
		"another query":    s.signV2("PUT", "/v1/customers/stays/upsert?", `{"name":"x"}`),
		"another spelling": s.signV2("PUT", "/v1/customers/%73tays/upsert", `{"name":"x"}`),
		"another body":     s.signV2("PUT", "/v1/customers/stays/upsert", `{"name":"y"}`),
		"another version":  {strings.Replace(s.signV2("PUT", "/v1/customers/stays/upsert", `{"name":"x"}`)[0], "v2:", "v1:", 1)},
		"v1 called v2":     append(s.sign(`{"name":"x"}`), strings.Replace(s.sign(`{"name":"x"}`)[0], "v1:", "v2:", 1)),
	}
	for name, headers := range replays {
		t.Run(name, func(t *testing.T) {
			if len(headers) == 1 {
				headers = append(s.signV2("PUT", "/v1/customers/stays/upsert", `{"name":"x"}`), headers...)
			}
			p := b.send(t, "PUT", "/v1/customers/stays/upsert", `{"name":"x"}`, headers...).problem(t, 401, "unauthorized")
			require.Equal(t, notTheirs, p.Detail)
		})
	}
	require.NotContains(t, b.send(t, "GET", "/v1/customers/stays", "").body, `"x"`)
}

// TestSignatureV2EqualsOutputOfOpenSSL compares a v2 signature with the output of OpenSSL:
// printf 'v2\n1700000000\nreq-1\nten_42\nPOST\n/v1/events?a=b\n%s' $(printf '{"a":1}' | sha256sum | cut -c -64) |
// openssl dgst -sha256 -hmac hms_secret -binary | base64
func TestSignatureV2EqualsOutputOfOpenSSL(t *testing.T) {
	t.Parallel()
	s := signer{secret: "hms_secret", tenant: 42}
	require.Equal(t, "Authorization: HMAC v2:5ej8+to74RbSZGSN8iOgkOmrQXHE5qCrtQlmwc6nYyo=",
		s.signV2At(time.Unix(1700000000, 0), "req-1", "POST", "/v1/events?a=b", `{"a":1}`)[0])
}

func TestASignatureV2IsAcceptedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSignerV2(t, metering.ScopeAdmin)
	headers := s.signV2("POST", "/v1/events", hello)
	require.Equal(t, 200, b.send(t, "POST", "/v1/events", hello, headers...).status)
	for _, replica := range []*bundle{b, b.replica(t, func(*api.Deps) {})} {
		p := replica.send(t, "POST", "/v1/events", hello, headers...).problem(t, 401, "unauthorized")
		require.Equal(t, usedBefore, p.Detail)
	}
}

func TestSecretForV2RefusesSignaturesV1(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSignerV2(t, metering.ScopeAdmin)
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", s.signV2("GET", "/v1/meters", "")...).status)
	p := b.send(t, "GET", "/v1/meters", "", s.sign("")...).problem(t, 401, "unauthorized")
	require.Equal(t, "this secret accepts only signatures of version v2", p.Detail)
	b.send(t, "POST", "/v1/events", hello, s.sign(hello)...).problem(t, 401, "unauthorized")

	fresh, made := s.rotate(t, b, "")
	require.EqualValues(t, "v2", made.Signatures, "a successor is for what the old one was for")
	b.send(t, "GET", "/v1/meters", "", fresh.sign("")...).problem(t, 401, "unauthorized")
	b.send(t, "POST", "/v1/hmac-secrets", `{"name":"n","scope":"admin","signatures":"v1"}`).problem(t, 422, "invalid")
}

// TestSignatureV1WithoutBodyAuthorizesOnlyReads checks that a v1 signature without a body authorizes only reads by
// default, because it covers neither method nor path.
func TestSignatureV1WithoutBodyAuthorizesOnlyReads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.newSigner(t, metering.ScopeAdmin)
	key := b.newKey(t, metering.ScopeReadOnly)
	var listed struct{ Data []struct{ ID, Scope string } }
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/api-keys", "").body), &listed))
	require.Equal(t, "read_only", listed.Data[0].Scope)
	revoke := "/v1/api-keys/" + listed.Data[0].ID + "/revoke"
	works := func() bool {
		return b.send(t, "GET", "/v1/meters", "", "Authorization: Bearer "+key).status == http.StatusOK
	}

	headers := s.sign("")
	for _, attack := range [][2]string{{"POST", revoke}, {"POST", "/v1/api-keys/" + listed.Data[0].ID + "/rotate"}, {"DELETE", "/v1/tenant/oidc"}} {
		p := b.send(t, attack[0], attack[1], "", headers...).problem(t, 403, "forbidden")
		require.Contains(t, p.Detail, "v2")
	}
	require.True(t, works())
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", headers...).status, "what was refused has not taken the id")
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"c"}`, s.sign(`{"external_id":"c"}`)...).status)

	require.Equal(t, 200, b.send(t, "PATCH", "/v1/tenant", `{"v1_bodyless_writes":true}`).status)
	require.Equal(t, 200, b.send(t, "POST", revoke, "", s.sign("")...).status)
	require.False(t, works())
	require.Len(t, b.audited(t, "tenant.update"), 1)
}

// TestSigningExamplesOfDocsRun runs the examples of docs/api/keys.md with shell, Python and Go.
func TestSigningExamplesOfDocsRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/api/keys.md")
	require.NoError(t, err)
	for language, c := range map[string]struct {
		file string
		run  []string
	}{
		"sh":     {"signed.sh", []string{"bash", "-eu"}},
		"python": {"signed.py", []string{"python3"}},
		"go":     {"signed.go", []string{"go", "run"}},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			_, after, found := strings.Cut(string(text), "<!-- signed by "+language+" -->\n```"+language+"\n")
			require.True(t, found)
			example, _, _ := strings.Cut(after, "\n```\n")
			file := filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.WriteFile(file, []byte(example+"\n"), 0o600))
			b := setup(t)
			b.meter(t, "calls", "call")
			s := b.newSignerV2(t, metering.ScopeReadWrite)

			_, err := exec.LookPath(c.run[0])
			require.NoError(t, err, "the example of the documents needs %s: apt-get install %s", c.run[0], c.run[0])
			command := exec.CommandContext(t.Context(), c.run[0], append(c.run[1:], file)...)
			command.Env = append(os.Environ(), "ODOMETER_URL="+b.url, "TENANT="+s.tenant.String(), "SECRET="+s.secret, "GOFLAGS=")
			said, err := command.CombinedOutput()
			require.NoError(t, err, string(said))
			require.Contains(t, string(said), `"accepted":1`)
			require.Contains(t, string(said), `{"total":1}`)
		})
	}
}
