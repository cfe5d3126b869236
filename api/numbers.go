package api

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// numbersHeader is the request header that selects how the response writes decimals: as JSON numbers, or as
// JSON strings with the same digits. Strings exist because many generated clients read JSON numbers into
// floats.
const numbersHeader = "Odometer-Numbers"

const (
	asNumbers = "number" // the default
	asStrings = "string"
)

// chooseNumbers makes the response writer quote decimals if numbersHeader is asStrings.
func (s *server) chooseNumbers(ctx huma.Context, next func(huma.Context)) {
	x := exchangeOf(ctx.Context())
	decimals := s.decimals[ctx.Operation().OperationID]
	if len(decimals) > 0 {
		ctx.AppendHeader("Vary", numbersHeader)
	}
	switch chosen := x.request.Header.Values(numbersHeader); {
	case len(chosen) == 0 || len(chosen) == 1 && chosen[0] == asNumbers:
	case len(chosen) == 1 && chosen[0] == asStrings:
		x.writer.decimals = decimals
	default:
		err := metering.Invalid("header."+numbersHeader, "must be %s or %s, once", asNumbers, asStrings)
		s.refuseOperation(ctx, err)
		return
	}
	next(ctx)
}

// decimalPlan describes where a JSON value contains decimals. A nil plan means that the value contains none.
// For example, the values in free-form metadata have a nil plan.
type decimalPlan struct {
	decimal bool
	fields  map[string]*decimalPlan // of an object
	values  *decimalPlan            // of an object's other fields
	items   *decimalPlan            // of an array
}

// decimalsOf returns the plans of the JSON responses that contain decimals, by operation ID and status.
func decimalsOf(document *huma.OpenAPI) map[string]map[string]*decimalPlan {
	plans := planner{document.Components.Schemas.Map(), map[*huma.Schema]*decimalPlan{}}
	found := map[string]map[string]*decimalPlan{}
	for _, op := range operationsIn(&huma.OpenAPI{Paths: document.Paths}) {
		for status, response := range op.Responses {
			body := response.Content["application/json"]
			if body == nil || body.Schema == nil || !hasDecimal(document, body.Schema) {
				continue
			}
			if found[op.OperationID] == nil {
				found[op.OperationID] = map[string]*decimalPlan{}
			}
			found[op.OperationID][status] = plans.decimalsIn(body.Schema)
		}
	}
	return found
}

func isDecimal(schema *huma.Schema) bool {
	return schema.Type == huma.TypeNumber && schema.Format == decimalFormat
}

func hasDecimal(document *huma.OpenAPI, schema *huma.Schema) (has bool) {
	walk(document, schema, map[*huma.Schema]bool{}, func(one *huma.Schema) { has = has || isDecimal(one) })
	return has
}

// planner creates the decimalPlans of schemas.
type planner struct {
	schemas map[string]*huma.Schema
	made    map[*huma.Schema]*decimalPlan
}

// decimalsIn returns the plan of a schema. It creates the plan once, so that recursive schemas end.
func (p planner) decimalsIn(schema *huma.Schema) *decimalPlan {
	if schema == nil {
		return nil
	}
	if schema.Ref != "" {
		schema = p.schemas[schemaOf(schema)]
	}
	if plan, made := p.made[schema]; made {
		return plan
	}
	if len(schema.OneOf)+len(schema.AnyOf)+len(schema.AllOf) > 0 {
		panic("api: a schema of alternatives has no plan of its decimals")
	}
	plan := &decimalPlan{decimal: isDecimal(schema), fields: map[string]*decimalPlan{}}
	p.made[schema] = plan
	for name, field := range schema.Properties {
		plan.fields[name] = p.decimalsIn(field)
	}
	values, _ := schema.AdditionalProperties.(*huma.Schema)
	plan.values, plan.items = p.decimalsIn(values), p.decimalsIn(schema.Items)
	return plan
}

// decimalQuoter puts quotes around the decimals of a JSON text and keeps all other bytes unchanged. The text
// can arrive in parts of any size.
type decimalQuoter struct {
	plan    *decimalPlan // of the whole text
	open    []container
	field   *decimalPlan // of the value after the current field name
	name    []byte       // of the current field
	named   bool         // the next string is the value of a field, not its name
	within  token
	escaped bool
	quoted  []byte
}

type container struct {
	plan  *decimalPlan
	array bool
}

type token byte

const (
	betweenTokens token = iota
	withinString
	withinName
	withinNumber
	withinDecimal
)

// quote returns the next part of the text with its decimals in quotes. The returned slice is valid until the
// next call.
func (q *decimalQuoter) quote(part []byte) []byte {
	q.quoted = q.quoted[:0]
	for _, c := range part {
		q.endNumber(c)
		switch q.within {
		case withinString, withinName:
			q.continueString(c)
		case betweenTokens:
			q.begin(c)
		}
		q.quoted = append(q.quoted, c)
	}
	return q.quoted
}

// endNumber ends the current number if c does not belong to it. It closes the quotes of a decimal.
func (q *decimalQuoter) endNumber(c byte) {
	if q.within < withinNumber || '0' <= c && c <= '9' || strings.IndexByte("+-.eE", c) >= 0 {
		return
	}
	if q.within == withinDecimal {
		q.quoted = append(q.quoted, '"')
	}
	q.within = betweenTokens
}

func (q *decimalQuoter) continueString(c byte) {
	switch {
	case q.escaped:
		q.escaped = false
	case c == '\\':
		q.escaped = true
	case c == '"':
		if q.within == withinName {
			q.field = q.fieldPlan(q.name)
		}
		q.within = betweenTokens
		return
	}
	if q.within == withinName {
		q.name = append(q.name, c)
	}
}

// fieldPlan returns the plan of a field of the innermost object.
func (q *decimalQuoter) fieldPlan(name []byte) *decimalPlan {
	plan := q.open[len(q.open)-1].plan
	if plan == nil {
		return nil
	}
	if field, known := plan.fields[string(name)]; known {
		return field
	}
	return plan.values
}

// begin handles a byte between two tokens. It opens the quotes of a decimal.
func (q *decimalQuoter) begin(c byte) {
	switch c {
	case '{', '[':
		q.open = append(q.open, container{q.value(), c == '['})
		q.named = false
	case '}', ']':
		q.open = q.open[:len(q.open)-1]
	case ',':
		q.named = false
	case ':':
		q.named = true
	case '"':
		q.within = withinString
		if !q.named && len(q.open) > 0 && !q.open[len(q.open)-1].array {
			q.within, q.name = withinName, q.name[:0]
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		q.within = withinNumber
		if plan := q.value(); plan != nil && plan.decimal {
			q.within = withinDecimal
			q.quoted = append(q.quoted, '"')
		}
	}
}

// value returns the plan of the JSON value that begins at the current byte.
func (q *decimalQuoter) value() *decimalPlan {
	if len(q.open) == 0 {
		return q.plan
	}
	inside := q.open[len(q.open)-1]
	switch {
	case inside.plan == nil:
		return nil
	case inside.array:
		return inside.plan.items
	}
	return q.field
}

// stringsDocument returns the OpenAPI document for clients that send the header numbersHeader with the value
// asStrings. In this document, the decimals of responses are strings, and each operation that returns
// decimals requires the header. decimals is the result of decimalsOf.
func stringsDocument(document *huma.OpenAPI, decimals map[string]map[string]*decimalPlan) ([]byte, error) {
	text, err := document.MarshalJSON()
	if err != nil {
		return nil, err
	}
	of := stringsConverter{changed: map[string]bool{}}
	if err := decodeKeepingNumbers(text, &of.document); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	of.schemas, of.examples = inside(of.document, "components", "schemas"), inside(of.document, "components", "examples")
	for _, described := range operationsIn(&huma.OpenAPI{Paths: document.Paths}) {
		statuses, op := decimals[described.OperationID], of.operation(described)
		if len(statuses) == 0 {
			continue
		}
		parameters, _ := op["parameters"].([]any)
		op["parameters"] = append(parameters, node{
			"name": numbersHeader, "in": "header", "required": true, "description": "The decimals of the response are strings with every digit",
			"schema": node{"type": "string", "enum": []any{asStrings}},
		})
		for status, plan := range statuses {
			body := inside(op, "responses", status, "content", "application/json")
			if err := of.quoteExamples(body, plan); err != nil {
				return nil, err
			}
			of.change(body["schema"], asText)
		}
	}
	for _, op := range operationsIn(&huma.OpenAPI{Paths: document.Paths}) {
		of.change(inside(of.operation(op), "requestBody", "content"), asDouble)
	}
	return json.Marshal(of.document)
}

type node = map[string]any

// inside returns the nested object at the path names, or nil if there is none.
func inside(of node, names ...string) node {
	for _, name := range names {
		of, _ = of[name].(node)
	}
	return of
}

// stringsConverter changes the JSON of an OpenAPI document to the form that stringsDocument returns.
type stringsConverter struct {
	document, schemas, examples node
	changed                     map[string]bool // references
}

func (of stringsConverter) operation(op *huma.Operation) node {
	return inside(of.document, "paths", op.Path, strings.ToLower(op.Method))
}

// quoteExamples replaces the decimals in the examples of a body with strings.
func (of stringsConverter) quoteExamples(body node, plan *decimalPlan) error {
	for name := range inside(body, "examples") {
		example := inside(of.examples, name)
		value, err := json.Marshal(example["value"])
		if err != nil {
			return fmt.Errorf("write example %s: %w", name, err)
		}
		quoter := decimalQuoter{plan: plan}
		var quoted any
		if err := decodeKeepingNumbers(quoter.quote(value), &quoted); err != nil {
			return fmt.Errorf("read example %s: %w", name, err)
		}
		example["value"] = quoted
	}
	return nil
}

// decimalPattern is the JSON Schema pattern of a decimal in a string. The schema has no format, because some
// generators read a string with the format decimal into a float.
const decimalPattern = `^-?[0-9]+(\.[0-9]+)?$`

// asText changes the schema of a decimal to the schema of a string.
func asText(schema node) {
	schema["type"], schema["pattern"] = numberToString(schema["type"]), decimalPattern
	delete(schema, "format")
}

// asDouble sets the format double, because some generators otherwise use a 32-bit float for the decimals of
// requests. A 64-bit float holds 15 digits.
func asDouble(schema node) { schema["format"] = "double" }

// change calls replace once for each decimal of a schema, referenced schemas included.
func (of stringsConverter) change(part any, replace func(node)) {
	switch part := part.(type) {
	case []any:
		for _, one := range part {
			of.change(one, replace)
		}
	case node:
		if reference, ok := part["$ref"].(string); ok && !of.changed[reference] {
			of.changed[reference] = true
			of.change(of.schemas[path.Base(reference)], replace)
		}
		if part["format"] == decimalFormat {
			replace(part)
		}
		for _, one := range part {
			of.change(one, replace)
		}
	}
}

// numberToString returns a type, or a list of types, with string in place of number.
func numberToString(kind any) any {
	if kinds, several := kind.([]any); several {
		for i := range kinds {
			kinds[i] = numberToString(kinds[i])
		}
	}
	if kind == huma.TypeNumber {
		return huma.TypeString
	}
	return kind
}
