package api

import (
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// namePattern matches a code span, a text in single quotes, a request line, or a name with an underscore.
var namePattern = regexp.MustCompile("`[^`]*`|\\B'[^\\s'`][^'`]*'|\\b(?:GET|POST|PUT|PATCH|DELETE) /[\\w/{}.-]*[\\w}]|\\b(?:[a-z][a-z0-9]*\\.)*[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?:\\.[a-z0-9_]+)*")

// markNames formats the names in a description as Markdown code spans. A description puts a name that could
// be an English word in single quotes, because a struct tag cannot contain a backtick.
func markNames(description string) string {
	return namePattern.ReplaceAllStringFunc(description, func(name string) string {
		if name[0] == '`' {
			return name
		}
		return "`" + strings.Trim(name, "'") + "`"
	})
}

// markAllNames applies markNames to all descriptions of the document.
func markAllNames(document *huma.OpenAPI) {
	for _, schema := range document.Components.Schemas.Map() {
		markSchema(schema)
	}
	for _, scheme := range document.Components.SecuritySchemes {
		scheme.Description = markNames(scheme.Description)
	}
	for _, op := range operationsIn(document) {
		op.Description = markNames(op.Description)
		for _, p := range op.Parameters {
			p.Description = markNames(p.Description)
			markSchema(p.Schema)
		}
		if op.RequestBody != nil {
			op.RequestBody.Description = markNames(op.RequestBody.Description)
			markContent(op.RequestBody.Content)
		}
		for _, response := range op.Responses {
			response.Description = markNames(response.Description)
			for _, header := range response.Headers {
				header.Description = markNames(header.Description)
			}
			markContent(response.Content)
		}
	}
}

func markContent(content map[string]*huma.MediaType) {
	for _, media := range content {
		markSchema(media.Schema)
	}
}

func markSchema(schema *huma.Schema) {
	if schema == nil {
		return
	}
	schema.Description = markNames(schema.Description)
	markSchema(schema.Items)
	if values, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		markSchema(values)
	}
	for _, property := range schema.Properties {
		markSchema(property)
	}
}
