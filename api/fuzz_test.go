package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

var fuzzNow = time.Unix(1_700_000_000, 500_000_000)

// FuzzSignatureHeaders: what is read of a signed request is as it was sent,
// fresh and well-formed, and nothing else passes.
func FuzzSignatureHeaders(f *testing.F) {
	mac := "v1:" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	f.Add(mac, "1700000000", "req-1", "ten_42")
	f.Add(mac, "1700000301", "", "ten_0")
	f.Add(mac[:20]+"\n"+mac[20:], "1700000000", "req-1", "ten_42")
	f.Add("v1:", "-1", "a:b", "ten_")
	f.Add("v2:"+mac[3:], "1700000000", "req-1", "ten_42")
	f.Add("v2:"+mac, "9999999999999999999999", strings.Repeat("a", 129), "ten_99999999999999999999")
	f.Fuzz(func(t *testing.T, credential, timestamp, id, tenant string) {
		r := httptest.NewRequest(http.MethodPut, "/v1/a%2Fb?c=d%20e", nil)
		r.Header = http.Header{"X-Timestamp": {timestamp}, "X-Request-Id": {id}, "X-Tenant-Id": {tenant}}
		s, err := readSignature(r, credential, fuzzNow)
		if err != nil {
			require.Equal(t, metering.CodeUnauthorized, metering.CodeOf(err))
			return
		}
		require.Contains(t, []signatureVersion{v1, v2}, s.version)
		require.Equal(t, credential, string(s.version)+":"+base64.StdEncoding.EncodeToString(s.mac))
		require.Equal(t, [2]string{"PUT", "/v1/a%2Fb?c=d%20e"}, [2]string{s.method, s.target})
		require.Equal(t, timestamp, s.timestamp)
		require.Regexp(t, `^[A-Za-z0-9._-]{1,128}$`, s.requestID)
		require.Equal(t, id, s.requestID)
		require.Equal(t, tenant, s.tenant.String())
		seconds, err := strconv.ParseInt(timestamp, 10, 64)
		require.NoError(t, err)
		require.LessOrEqual(t, fuzzNow.Sub(time.Unix(seconds, 0)).Abs(), 300*time.Second)
		require.False(t, s.by([]byte("secret"), pieces{[]byte("bo"), nil, []byte("dy")}))
	})
}

func decoded(token string) []byte {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil
	}
	return raw
}

// FuzzPageToken: a token is read only as it was made, for the tenant and the
// query that it was made for.
func FuzzPageToken(f *testing.F) {
	s := &server{pageKey: []byte("a key that strangers do not have")}
	asking := func(tenant metering.TenantID, query string) context.Context {
		x := &exchange{request: httptest.NewRequest(http.MethodGet, "/v1/customers?"+query, nil), principal: Principal{Tenant: metering.Tenant{ID: tenant}}}
		return context.WithValue(context.Background(), exchangeKey{}, x)
	}
	ours := asking(42, "customer=acme&page_size=7")
	made := s.pageToken(ours, metering.CustomerID(99))
	f.Add(made)
	f.Add(made + "A")
	f.Add(made + "\n")
	f.Add(made[1:])
	f.Add(s.pageToken(asking(43, "customer=acme"), metering.CustomerID(99)))
	f.Add(s.pageToken(asking(42, "customer=other"), metering.CustomerID(99)))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		var cursor metering.CustomerID
		err := s.readPageToken(ours, token, &cursor)
		switch {
		case token == "":
			require.NoError(t, err)
			require.Zero(t, cursor)
		case bytes.Equal(decoded(token), decoded(made)): // base64 has more than one way to say so
			require.NoError(t, err)
			require.Equal(t, metering.CustomerID(99), cursor)
		default:
			require.ErrorIs(t, err, errPageToken)
		}
	})
}

// FuzzEventBatch: a body is JSON with at most so many events, each stored or
// rejected for itself, or it is refused.
func FuzzEventBatch(f *testing.F) {
	for _, seed := range []string{
		`{"events":[{"event_type":"call","customer_id":"acme","value":1.5,"timestamp":"2026-01-01T00:00:00Z","properties":{"a":[]}}]}`,
		`{"events":[{"event_type":1},{"value":"1"},null,7,[],{}],"events":[{}]}`, `{"ignored":{"deep":[1e999]},"events":[{}]}`,
		`{"events":[{"Value":1,"idempotencyKey":"k","v\u0061lue":2,"a\\\"":{"b":[1,{"c":2}]},"":"{,","\uD800x":null}]}`,
		`{"events":[{"event_type":"a","event_type":null,"timestamp":"x","timestamp":null,"value":null,"properties":{},"PROPERTIES":3}]}`,
		`{"events":[{"event_type":[],"customer_id":{"a":1},"event_type":"b"}],"Events":[1]}`, "{\"events\":[{\"customer_id\":\"\xff\",\"\xff\":1}]}",
		`{"events":null}`, `{"events":[`, `{"events":{}}`, `{}{}`, "\xff", `{"events":[{"event_type":"\ud800","customer_id":"\u0000"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		batch, err := newEventDecoder(bytes.NewReader(body)).batch()
		if err != nil {
			require.Contains(t, []metering.Code{codeMalformed, metering.CodeInvalid}, metering.CodeOf(err))
			require.False(t, metering.CodeOf(err) == codeMalformed && json.Valid(body))
			return
		}
		require.True(t, json.Valid(body))
		require.LessOrEqual(t, len(batch.events), maxBatch)
		var whole map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &whole))
		var texts []json.RawMessage
		if whole["events"] != nil {
			require.NoError(t, json.Unmarshal(whole["events"], &texts))
		}
		require.Len(t, batch.events, len(texts))
		for i, e := range batch.events {
			requireDecoded(t, texts[i], e)
			event, rejection := e.judge(fuzzNow, 0)
			require.Equal(t, rejection == nil, event.EventType != "")
		}
	})
}

// requireDecoded: an event is what encoding/json reads of its text.
func requireDecoded(t *testing.T, text []byte, got sentEvent) {
	t.Helper()
	var want metering.SentEvent
	var mismatch *json.UnmarshalTypeError
	if errors.As(json.Unmarshal(text, &want), &mismatch) {
		require.NotNil(t, got.rejection)
		require.Equal(t, cmp.Or(mismatch.Field, "event"), got.rejection.Field)
	} else {
		require.Nil(t, got.rejection)
		require.Equal(t, want, got.SentEvent)
	}
	requireUnknown(t, text, got.ignored)
}

// requireUnknown: the fields that are ignored are those that encoding/json ignores.
func requireUnknown(t *testing.T, text []byte, ignored []string) {
	t.Helper()
	var all map[string]json.RawMessage
	if json.Unmarshal(text, &all) != nil || len(all) > maxUnknownFields {
		return
	}
	want, got := map[string]bool{}, map[string]bool{}
	for name := range all {
		if !slices.ContainsFunc(eventFields, func(known string) bool { return strings.EqualFold(known, name) }) {
			want[name] = true
		}
	}
	for _, name := range ignored {
		got[name] = true
	}
	require.Equal(t, want, got)
}
