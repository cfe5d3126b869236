package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

var fuzzNow = time.Unix(1_700_000_000, 500_000_000)

// FuzzSignatureHeaders checks that readSignature returns the headers of a signed request unchanged, and only if
// they are well-formed and fresh.
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
		require.False(t, s.matches([]byte("secret"), pieces{[]byte("bo"), nil, []byte("dy")}))
	})
}

// FuzzPageToken checks that a page token is accepted only unchanged, and only for its tenant and query.
func FuzzPageToken(f *testing.F) {
	s := &server{pageKey: []byte("a key that strangers do not have")}
	asking := func(tenant metering.TenantID, query string) context.Context {
		x := &exchange{request: httptest.NewRequest(http.MethodGet, "/v1/customers?"+query, nil), principal: Principal{Tenant: metering.Tenant{ID: tenant}}}
		return context.WithValue(context.Background(), exchangeKey{}, x)
	}
	ours := asking(42, "customer=acme&page_size=7")
	made := s.pageToken(ours, metering.CustomerID(999))
	f.Add(made)
	f.Add(made + "A")
	f.Add(made + "\n")
	f.Add(made[:len(made)-1] + string(made[len(made)-1]+1)) // the same bytes; only unused bits differ
	f.Add(made[1:])
	f.Add(s.pageToken(asking(43, "customer=acme"), metering.CustomerID(999)))
	f.Add(s.pageToken(asking(42, "customer=other"), metering.CustomerID(999)))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		var cursor metering.CustomerID
		err := s.readPageToken(ours, token, &cursor)
		switch token {
		case "":
			require.NoError(t, err)
			require.Zero(t, cursor)
		case made:
			require.NoError(t, err)
			require.Equal(t, metering.CustomerID(999), cursor)
		default:
			require.ErrorIs(t, err, errPageToken)
		}
	})
}

// FuzzEventBatch checks that a body is refused or decoded to at most maxBatch events. Each event is accepted or
// rejected separately.
func FuzzEventBatch(f *testing.F) {
	for _, seed := range []string{
		`{"events":[{"event_type":"call","customer_id":"acme","value":1.5,"timestamp":"2026-01-01T00:00:00Z","properties":{"a":[]}}]}`,
		`{"events":[{"event_type":1},{"value":"1"},null,7,[],{}],"events":[{}]}`, `{"ignored":{"deep":[1e999]},"events":[{}]}`,
		`{"events":[{"Value":1,"idempotencyKey":"k","v\u0061lue":2,"a\\\"":{"b":[1,{"c":2}]},"":"{,","\uD800x":null}]}`,
		`{"events":[{"event_type":"a","event_type":null,"timestamp":"x","timestamp":null,"value":null,"properties":{},"PROPERTIES":3}]}`,
		`{"events":[{"event_type":[],"customer_id":{"a":1},"event_type":"b"}],"Events":[1]}`, "{\"events\":[{\"customer_id\":\"\xff\",\"\xff\":1}]}",
		`{"events":[{"value":1,"VALUE":1000},{"value":7,"value":null},{"v":1,"\u0076":1},{"properties":{"a":{"b":1,"b":2}}}],"a":1,"a":2}`,
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
		require.LessOrEqual(t, len(batch.events), maxBatch)
		if !json.Valid(body) {
			require.Greater(t, bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")), maxNesting)
			return
		}
		whole := membersOf(t, body)
		require.Empty(t, whole.twice)
		var texts []json.RawMessage
		if whole.values["events"] != nil {
			require.NoError(t, json.Unmarshal(whole.values["events"], &texts))
		}
		require.Len(t, batch.events, len(texts))
		for i, e := range batch.events {
			requireDecoded(t, texts[i], e)
			event, rejection := e.judge(fuzzNow, 0)
			require.Equal(t, rejection == nil, event.EventType != "")
		}
	})
}

// members contains the fields of a JSON object, as encoding/json reads them one by one.
type members struct {
	values map[string]json.RawMessage
	twice  []string
	broken bool // a name is not UTF-8
}

// membersOf decodes the fields of a JSON object with encoding/json.
func membersOf(t *testing.T, text []byte) members {
	t.Helper()
	m := members{values: map[string]json.RawMessage{}}
	decoder := json.NewDecoder(bytes.NewReader(text))
	_, err := decoder.Token()
	require.NoError(t, err)
	for decoder.More() {
		from := decoder.InputOffset()
		token, err := decoder.Token()
		require.NoError(t, err)
		name := token.(string)
		literal := bytes.TrimLeft(text[from:decoder.InputOffset()], " \t\r\n,")
		if !jsontext.Value(literal).IsValid() {
			m.broken = true
		} else if _, known := m.values[name]; known {
			m.twice = append(m.twice, name)
		}
		var value json.RawMessage
		require.NoError(t, decoder.Decode(&value))
		m.values[name] = value
	}
	return m
}

// requireDecoded checks that the decoded event is a rejection or the event that encoding/json decodes.
func requireDecoded(t *testing.T, text []byte, got sentEvent) {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		require.Equal(t, notAnObject, *got.rejection)
		return
	}
	if object == nil { // null
		require.Equal(t, sentEvent{}, got)
		return
	}
	want := membersOf(t, text)
	broken := want.broken
	for _, name := range []string{"event_type", "customer_id", "timestamp", "idempotency_key"} {
		value := want.values[name]
		if value == nil || string(value) == "null" {
			continue
		}
		broken = broken || value[0] != '"' || !jsontext.Value(value).IsValid()
	}
	if broken {
		require.NotNil(t, got.rejection)
		return
	}
	if len(want.twice) > 0 && len(want.values) <= maxUnknownFields {
		require.NotNil(t, got.rejection)
		return
	}
	if got.rejection != nil {
		return
	}
	var event metering.SentEvent
	exact := map[string]json.RawMessage{}
	unknown := map[string]bool{}
	for name, value := range want.values {
		if slices.Contains(eventFields, name) {
			exact[name] = value
		} else {
			unknown[name] = true
		}
	}
	again, err := json.Marshal(exact)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(again, &event))
	event.Value, event.Properties = exact["value"], exact["properties"]
	require.Equal(t, event, got.SentEvent)
	if len(want.values) > maxUnknownFields {
		return
	}
	ignored := map[string]bool{}
	for _, name := range got.ignored {
		ignored[name] = true
	}
	require.Equal(t, unknown, ignored)
}
