package api

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// examplesText contains the example values of the OpenAPI document. "fields" maps each field to its example.
// The name of a schema maps to additional or different values for that schema.
//
//go:embed examples.json
var examplesText []byte

// examples builds the examples of schemas. An example has the schema's required fields and the fields in the
// schema's entry of examplesText.
type examples struct {
	schemas map[string]*huma.Schema
	told    map[string]map[string]any
}

var toldExamples = sync.OnceValues(func() (told map[string]map[string]any, err error) {
	if err := decodeKeepingNumbers(examplesText, &told); err != nil {
		return nil, fmt.Errorf("examples.json: %w", err)
	}
	return told, nil
})

// exemplify adds an example to each JSON body of the document, one for each alternative of its schema. Each
// example is stored once, and bodies refer to the example by its name.
func exemplify(document *huma.OpenAPI) error {
	told, err := toldExamples()
	if err != nil {
		return err
	}
	e := examples{document.Components.Schemas.Map(), told}
	document.Components.Examples = map[string]*huma.Example{}
	for _, op := range operationsIn(document) {
		for _, body := range jsonBodies(op) {
			body.Examples = map[string]*huma.Example{}
			for _, schema := range alternatives(body.Schema) {
				name := exampleName(op, schema)
				document.Components.Examples[name] = &huma.Example{Value: e.exampleOf(schema)}
				body.Examples[name] = &huma.Example{Ref: "#/components/examples/" + name}
			}
		}
	}
	return nil
}

// jsonBodies returns the JSON bodies of an operation's request and responses.
func jsonBodies(op *huma.Operation) (bodies []*huma.MediaType) {
	contents := []map[string]*huma.MediaType{}
	if op.RequestBody != nil {
		contents = append(contents, op.RequestBody.Content)
	}
	for _, answer := range op.Responses {
		contents = append(contents, answer.Content)
	}
	for _, content := range contents {
		for media, body := range content {
			if strings.HasSuffix(media, "json") {
				bodies = append(bodies, body)
			}
		}
	}
	return bodies
}

func alternatives(schema *huma.Schema) []*huma.Schema {
	if len(schema.AnyOf) > 0 {
		return schema.AnyOf
	}
	return []*huma.Schema{schema}
}

// exampleName returns the name of an example: the name of the schema, or the operation's id if the schema has no
// name.
func exampleName(op *huma.Operation, schema *huma.Schema) string {
	if schema.Ref == "" {
		return op.OperationID
	}
	return schemaOf(schema)
}

func schemaOf(schema *huma.Schema) string { return path.Base(schema.Ref) }

// exampleOf returns an example of a schema, or nil if the schema has no example.
func (e examples) exampleOf(schema *huma.Schema) any {
	switch {
	case schema.Ref != "":
		return e.object(schemaOf(schema))
	case schema.Type == huma.TypeArray:
		return []any{e.exampleOf(schema.Items)}
	case len(schema.Enum) > 0:
		return schema.Enum[0]
	}
	return nil
}

func (e examples) object(name string) any {
	schema := e.schemas[name]
	if len(schema.AnyOf) > 0 {
		return e.exampleOf(schema.AnyOf[0])
	}
	object := make(map[string]any, len(schema.Required))
	for _, field := range schema.Required {
		object[field] = e.field(field, schema.Properties[field])
	}
	maps.Copy(object, e.told[name])
	return object
}

func (e examples) field(name string, schema *huma.Schema) any {
	if len(schema.Examples) > 0 {
		return schema.Examples[0]
	}
	if told, ok := e.told["fields"][name]; ok {
		return told
	}
	return e.exampleOf(schema)
}
