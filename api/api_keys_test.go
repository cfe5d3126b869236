package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesShowEveryCredentialOnce checks that the pages list every credential once, newest first, including
// revoked credentials.
func TestPagesShowEveryCredentialOnce(t *testing.T) {
	t.Parallel()
	for path, scope := range map[string]string{"/v1/api-keys": "ingest_only", "/v1/hmac-secrets": "admin"} {
		b := setup(t)
		var want []string
		for n := range 5 {
			want = append([]string{fmt.Sprint("made ", n)}, want...)
			made := b.send(t, "POST", path, fmt.Sprintf(`{"name":"made %d","scope":%q}`, n, scope))
			require.Equal(t, 201, made.status, made.body)
			var record struct{ ID string }
			require.NoError(t, json.Unmarshal([]byte(made.body), &record))
			require.Equal(t, 200, b.send(t, "POST", path+"/"+record.ID+"/revoke", "").status)
		}
		var seen []string
		for token := ""; ; {
			var page struct {
				Data          []struct{ Name string }
				NextPageToken *string `json:"next_page_token"`
			}
			answer := b.send(t, "GET", path+"?page_size=2"+token, "")
			require.NoError(t, json.Unmarshal([]byte(answer.body), &page), answer.body)
			require.LessOrEqual(t, len(page.Data), 2)
			for _, c := range page.Data {
				seen = append(seen, c.Name)
			}
			if page.NextPageToken == nil {
				break
			}
			token = "&page_token=" + url.QueryEscape(*page.NextPageToken)
		}
		require.Subset(t, seen, want, path)
		require.Equal(t, want, seen[:len(want)], path)
		b.send(t, "GET", path+"?page_token=x", "").problem(t, 422, "invalid")
	}
}
