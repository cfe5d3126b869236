package api

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// adaptToGenerators changes keywords of the document that client generators interpret too strictly. The
// validation of requests does not change.
func adaptToGenerators(document *huma.OpenAPI) {
	openResponses(document)
	describeDefaults(document)
	requireText(document)
}

// openResponses allows unknown fields in responses and messages, so that generated clients accept fields that
// future versions add. Request bodies do not allow them.
func openResponses(document *huma.OpenAPI) {
	seen := map[*huma.Schema]bool{}
	open := func(schema *huma.Schema) {
		if schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil
		}
	}
	for _, op := range operationsIn(&huma.OpenAPI{Paths: document.Paths}) {
		for _, response := range op.Responses {
			walkBodies(document, response.Content, seen, open)
		}
	}
	for _, op := range operationsIn(&huma.OpenAPI{Paths: document.Webhooks}) {
		walkBodies(document, op.RequestBody.Content, seen, open)
	}
}

// describeDefaults replaces the keyword default of request fields by a sentence, because openapi-typescript
// makes a field with a default required.
func describeDefaults(document *huma.OpenAPI) {
	seen := map[*huma.Schema]bool{}
	for _, op := range operationsIn(&huma.OpenAPI{Paths: document.Paths}) {
		if op.RequestBody == nil {
			continue
		}
		walkBodies(document, op.RequestBody.Content, seen, func(schema *huma.Schema) {
			for _, field := range schema.Properties {
				if field.Default == nil {
					continue
				}
				separator := ""
				if field.Description != "" {
					separator = ". "
				}
				value, _ := json.Marshal(field.Default) // cannot fail: the document itself is marshalled
				field.Description += separator + "Default: " + strings.Trim(string(value), `"`)
				field.Default = nil
			}
		})
	}
}

// requireText documents that required texts of paths and queries must not be empty, because the API treats an
// empty text as missing.
func requireText(document *huma.OpenAPI) {
	for _, op := range operationsIn(document) {
		for _, p := range op.Parameters {
			if p.In != "header" && p.Required && p.Schema.Type == huma.TypeString && p.Schema.MinLength == nil && len(p.Schema.Enum) == 0 {
				least := 1
				p.Schema.MinLength = &least
			}
		}
	}
}

// walkBodies calls visit for each schema of the bodies, referenced schemas included. It skips the schemas in
// seen, and adds the visited ones.
func walkBodies(document *huma.OpenAPI, content map[string]*huma.MediaType, seen map[*huma.Schema]bool, visit func(*huma.Schema)) {
	for _, body := range content {
		if body.Schema != nil {
			walk(document, body.Schema, seen, visit)
		}
	}
}

func walk(document *huma.OpenAPI, schema *huma.Schema, seen map[*huma.Schema]bool, visit func(*huma.Schema)) {
	if schema.Ref != "" {
		schema = document.Components.Schemas.Map()[schemaOf(schema)]
	}
	if seen[schema] {
		return
	}
	seen[schema] = true
	visit(schema)
	for _, field := range schema.Properties {
		walk(document, field, seen, visit)
	}
	for _, one := range slices.Concat(schema.OneOf, schema.AnyOf, schema.AllOf) {
		walk(document, one, seen, visit)
	}
	if schema.Items != nil {
		walk(document, schema.Items, seen, visit)
	}
	if values, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		walk(document, values, seen, visit)
	}
}
