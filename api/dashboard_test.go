package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dashboard"
)

const asBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"

func TestDashboardScreensHaveURLs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/", "/customers", "/customers/cus_42/bill?meter=calls", "/sign-in"} {
		page := b.send(t, http.MethodGet, path, "", "Authorization: ", asBrowser)
		require.Equal(t, http.StatusOK, page.status, path)
		require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
		require.Equal(t, "no-store", page.header.Get("Cache-Control"))
		require.Contains(t, page.body, "<title>Odometer</title>")
	}
	for _, path := range []string{"/customers", "/assets/none.js", "/v1/nope"} {
		b.send(t, http.MethodGet, path, "").problem(t, 404, "not_found")
	}
	b.send(t, http.MethodGet, "/v1/nope", "", asBrowser).problem(t, 404, "not_found")
	b.send(t, http.MethodPost, "/customers", "", asBrowser).problem(t, 404, "not_found")
	b.send(t, http.MethodDelete, "/v1/customers", "", asBrowser).problem(t, 405, "method_not_allowed")
}

func TestDashboardLoadsNothingFromOtherOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	nonces := map[string]bool{}
	for range 2 {
		page := b.send(t, http.MethodGet, "/", "", "Authorization: ", asBrowser)
		policy := page.header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.NotRegexp(t, `unsafe|http|\*`, policy)
		require.NotRegexp(t, `<style|style=|<script>|\son[a-z]+=|//|\{\{`, page.body, "nothing inline, nothing of another origin")
		nonces[regexp.MustCompile(`'nonce-([^']+)'`).FindStringSubmatch(policy)[1]] = true
	}
	require.Len(t, nonces, 2, "each answer has its own")
}

// TestTheDashboardsFilesAreCached requires a built dashboard, as `make test` provides it.
func TestTheDashboardsFilesAreCached(t *testing.T) {
	t.Parallel()
	_, built := dashboard.Files()
	require.True(t, built, "make dashboard")
	b := setup(t)
	page := b.send(t, http.MethodGet, "/", "", "Authorization: ", asBrowser)
	files := regexp.MustCompile(`(?:src|href)="(/[^"]+\.[a-z]+)"`).FindAllStringSubmatch(page.body, -1)
	require.GreaterOrEqual(t, len(files), 4)
	hashed := 0
	for _, file := range files {
		plain := b.send(t, http.MethodGet, file[1], "", "Authorization: ", "Accept-Encoding: identity")
		require.Equal(t, http.StatusOK, plain.status, file[1])
		require.Empty(t, plain.header.Get("Content-Encoding"))
		require.Regexp(t, `^(image/svg\+xml|text/css|text/javascript)`, plain.header.Get("Content-Type"))
		if !strings.HasPrefix(file[1], "/assets/") {
			continue
		}
		hashed++
		require.Equal(t, "public, max-age=31536000, immutable", plain.header.Get("Cache-Control"))
		compressed := b.send(t, http.MethodGet, file[1], "", "Authorization: ", "Accept-Encoding: gzip")
		require.Equal(t, "gzip", compressed.header.Get("Content-Encoding"))
		require.Equal(t, plain.body, uncompressed(t, compressed.body))
	}
	require.Positive(t, hashed)
}
