package api_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocsLoadNothingFromOtherOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	page := b.send(t, http.MethodGet, "/docs", "", "Authorization: ")
	require.Equal(t, http.StatusOK, page.status)
	require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
	policy := page.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotRegexp(t, `unsafe|http|\*`, policy)
	require.NotRegexp(t, `<style|style=|<script>|\son[a-z]+=|//`, page.body, "nothing inline, nothing of another origin")
	files := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
	require.Len(t, files, 5)
	for _, file := range files {
		plain := b.send(t, http.MethodGet, file[1], "", "Authorization: ", "Accept-Encoding: identity")
		require.Equal(t, http.StatusOK, plain.status, file[1])
		require.Empty(t, plain.header.Get("Content-Encoding"))
		require.Regexp(t, `^(image/png|text/css|text/javascript|application/openapi\+json)`, plain.header.Get("Content-Type"))
		require.NotEmpty(t, plain.body)
		compressed := b.send(t, http.MethodGet, file[1], "", "Authorization: ", "Accept-Encoding: gzip")
		if compressed.header.Get("Content-Encoding") == "" {
			require.Equal(t, plain.body, compressed.body)
			continue
		}
		require.Equal(t, plain.body, uncompressed(t, compressed.body))
	}
	b.send(t, http.MethodGet, "/docs/embed.go", "").problem(t, 404, "not_found")
}

// uncompressed decompresses a gzip text.
func uncompressed(t *testing.T, text string) string {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(text))
	require.NoError(t, err)
	plain, err := io.ReadAll(reader)
	require.NoError(t, err)
	return string(plain)
}
