package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	contracts "github.com/odometer-metering/odometer/dev/contract"
)

// decimalText is the pattern of a decimal in a string.
const decimalText = `^-?[0-9]+(\.[0-9]+)?$`

const quotedNumbers = "Odometer-Numbers: string"

// stringsDocument returns the OpenAPI document of responses with decimals as strings.
func stringsDocument(t testing.TB) *openapi3.T {
	t.Helper()
	text, err := api.StringsDocument(known)
	require.NoError(t, err)
	document, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	return document
}

// exactly decodes JSON with every number as json.Number, so that no digit is lost.
func exactly(t testing.TB, text string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&value))
	return value
}

// asNumbers converts each string that has the schema of a decimal to a number, and returns the value.
func asNumbers(schema *openapi3.Schema, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if of := schema.Properties[name]; of != nil {
				value[name] = asNumbers(of.Value, field)
			} else if of := schema.AdditionalProperties.Schema; of != nil {
				value[name] = asNumbers(of.Value, field)
			}
		}
	case []any:
		for i := range value {
			value[i] = asNumbers(schema.Items.Value, value[i])
		}
	case string:
		if schema.Format == "decimal" || schema.Pattern == decimalText {
			return json.Number(value)
		}
	}
	return value
}

// TestOpenAPIDocumentsDifferOnlyInFormOfDecimals checks that the examples of each response have the same values in the
// document with decimals as strings and in the document with decimals as numbers.
func TestOpenAPIDocumentsDifferOnlyInFormOfDecimals(t *testing.T) {
	t.Parallel()
	quoted, plain := stringsDocument(t), bothDocuments(t)["3.1"]
	require.NoError(t, quoted.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	contracts.Close(quoted)
	decimals, compared := 0, 0
	for path, item := range quoted.Paths.Map() {
		for method, op := range item.Operations() {
			header := op.Parameters.GetByInAndName("header", "Odometer-Numbers")
			has := false
			for status, response := range op.Responses.Map() {
				body := response.Value.Content["application/json"]
				if body == nil {
					continue
				}
				objectsOf("", body.Schema, map[*openapi3.Schema]bool{}, func(place string, schema *openapi3.Schema) {
					require.False(t, schema.Type.Includes("number"), "%s %s %s: %s", method, path, status, place)
					require.NotEqual(t, "decimal", schema.Format, "a generator may take it for a float")
					if schema.Pattern == decimalText {
						decimals++
						has = true
					}
				})
				other := plain.Paths.Value(path).GetOperation(method).Responses.Value(status).Value.Content["application/json"]
				for name, example := range body.Examples {
					was, is := example.Value.Value, other.Examples[name].Value.Value
					require.NoError(t, body.Schema.Value.VisitJSON(was), "%s %s: %s", method, path, name)
					wanted, err := json.Marshal(is)
					require.NoError(t, err)
					shown, err := json.Marshal(was)
					require.NoError(t, err)
					require.Equal(t, exactly(t, string(wanted)), asNumbers(body.Schema.Value, exactly(t, string(shown))), "%s %s: %s", method, path, name)
					compared++
				}
			}
			require.Equal(t, has, header != nil, "%s %s", method, path)
		}
	}
	require.Greater(t, decimals, 80)
	require.Greater(t, compared, 100)
	sent := quoted.Components.Schemas["Event"].Value.Properties["value"].Value
	require.True(t, sent.Type.Is("number"), "requests have numbers")
	require.Equal(t, "double", sent.Format, "a float of 32 bits would lose cents")
	require.True(t, quoted.Components.Schemas["StatementMeter"].Value.Properties["usage"].Value.Type.Is("number"), "and so do messages")
}

// TestResponsesHaveSameDecimalsAsNumbersAndStrings compares both forms of the responses of GET operations that return
// decimals.
func TestResponsesHaveSameDecimalsAsNumbersAndStrings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	value := "123456789012345678.123456789012"
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":`+value+`,"properties":{"model":"large","tokens":1.5}}`)
	b.send(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":25,"included_units":1000.5,"overage_rate":0.000000000001}`)
	document := stringsDocument(t)
	asked := 0
	for path, item := range document.Paths.Map() {
		if item.Get == nil || item.Get.Parameters.GetByInAndName("header", "Odometer-Numbers") == nil || strings.HasSuffix(path, "}") && !strings.HasPrefix(path, "/v1/meters") {
			continue
		}
		request := goodRequest("GET", path, item.Get)
		for name, good := range map[string]string{"{external_id}": "acme", "{slug}": "calls"} {
			request.path = strings.ReplaceAll(request.path, name, good)
		}
		target := request.path + "?" + request.query.Encode()
		plain := b.send(t, "GET", target, "")
		if plain.status != http.StatusOK {
			continue
		}
		quoted := b.send(t, "GET", target, "", quotedNumbers)
		require.Equal(t, http.StatusOK, quoted.status, quoted.body)
		require.Equal(t, []string{"Odometer-Numbers"}, quoted.header.Values("Vary"), path)
		require.Equal(t, []string{"Odometer-Numbers"}, plain.header.Values("Vary"), path)
		schema := item.Get.Responses.Value("200").Value.Content["application/json"].Schema.Value
		now := regexp.MustCompile(`"20[0-9T:.-]+Z"`) // some responses contain the time of the request
		plain.body, quoted.body = now.ReplaceAllString(plain.body, `""`), now.ReplaceAllString(quoted.body, `""`)
		require.Equal(t, exactly(t, plain.body), asNumbers(schema, exactly(t, quoted.body)), path)
		asked++
	}
	require.Greater(t, asked, 10)

	total := b.send(t, "GET", "/v1/usage/total?customer=acme", "", quotedNumbers)
	require.Contains(t, total.body, `"total":"`+value+`"`)
	export := b.send(t, "GET", "/v1/usage/export?customer=acme", "", quotedNumbers)
	require.Contains(t, export.body, `"value":"`+value+`"`)
	require.Contains(t, export.body, `"tokens":1.5`, "properties are the client's own")
	csv := b.send(t, "GET", "/v1/usage/export?customer=acme&format=csv", "", quotedNumbers)
	require.Equal(t, b.send(t, "GET", "/v1/usage/export?customer=acme&format=csv", "").body, csv.body)
}

func TestWriteResponseCanHaveDecimalsAsStrings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	price := `{"base_price":25.10,"included_units":0,"overage_rate":0.000000000001}`
	require.Contains(t, b.send(t, "PUT", "/v1/meters/calls/pricing", price, quotedNumbers).body, `"overage_rate":"0.000000000001"`)
	require.Contains(t, b.send(t, "PUT", "/v1/meters/calls/pricing", price).body, `"overage_rate":0.000000000001`)
}

func TestOdometerNumbersHeaderAcceptsTwoValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, bad := range []string{"strings", "float", "string, number", "String"} {
		problem := b.send(t, "GET", "/v1/meters", "", "Odometer-Numbers: "+bad).problem(t, 422, "invalid")
		require.Equal(t, "header.Odometer-Numbers", problem.Errors[0].Location)
		require.Equal(t, "must be number or string, once", problem.Errors[0].Message)
	}
	for _, good := range []string{"string", "number"} {
		require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", "Odometer-Numbers: "+good).status)
	}
	var served bytes.Buffer
	text, err := api.StringsDocument(known)
	require.NoError(t, err)
	require.NoError(t, json.Compact(&served, text))
	require.JSONEq(t, served.String(), b.send(t, "GET", "/openapi-strings.json", "", "Authorization: ").body)
}
