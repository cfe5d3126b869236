package openapi

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
	"github.com/stripe/stripe-mock/spec"
)

// Answers returns a function that validates a response in the document's version. It returns an error for a
// field, type or enum value that the document lacks. It does not detect missing fields.
func Answers() (func(answer map[string]any) error, error) {
	document, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, fmt.Errorf("load document: %w", err)
	}
	return schemas{document.Components.Schemas, document.Info.Version}.checkAnswer, nil
}

// schemas holds the schemas of the OpenAPI document by name, and the version of the document.
type schemas struct {
	named   map[string]*spec.Schema
	version string
}

// checkAnswer validates an object against the schema that its field "object" names. For a list, it validates only
// the elements. For an event, it also validates data.object, unless the event has a later API version.
func (all schemas) checkAnswer(o map[string]any) error {
	name, _ := o["object"].(string)
	if data, ok := o["data"].([]any); ok && name == "list" {
		for n, element := range data {
			if err := all.checkNested(element); err != nil {
				return fmt.Errorf("data[%d]: %w", n, err)
			}
		}
		return nil
	}
	if o["deleted"] == true {
		name = "deleted_" + name
	}
	schema, ok := all.named[name]
	if !ok {
		return fmt.Errorf("no schema of %q", name)
	}
	if err := all.check(schema, o, name); err != nil {
		return err
	}
	data, _ := o["data"].(map[string]any)
	if version, _ := o["api_version"].(string); name == "event" && version <= all.version {
		return all.checkNested(data["object"])
	}
	return nil
}

// checkNested validates an object within another one by its own field "object".
func (all schemas) checkNested(value any) error {
	o, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is not an object", value)
	}
	return all.checkAnswer(o)
}

// check validates a value against a schema. path is the position of the value, for the error.
func (all schemas) check(schema *spec.Schema, value any, path string) error {
	if schema.Ref != "" {
		schema = all.named[strings.TrimPrefix(schema.Ref, "#/components/schemas/")]
	}
	if value == nil && schema.Nullable {
		return nil
	}
	if len(schema.AnyOf) > 0 {
		return all.checkAnyOf(schema.AnyOf, value, path)
	}
	if len(schema.Enum) > 0 && !slices.Contains(schema.Enum, value) {
		return fmt.Errorf("%s: %v is none of %v", path, value, schema.Enum)
	}
	switch v := value.(type) {
	case map[string]any:
		return all.checkFields(schema, v, path)
	case []any:
		if schema.Type != spec.TypeArray {
			return fmt.Errorf("%s: a list is no %s", path, schema.Type)
		}
		for n, element := range v {
			if err := all.check(schema.Items, element, fmt.Sprintf("%s[%d]", path, n)); err != nil {
				return err
			}
		}
		return nil
	}
	if !hasType(schema.Type, value) {
		return fmt.Errorf("%s: %v is no %s", path, value, schema.Type)
	}
	return nil
}

// hasType reports whether a decoded JSON value has the type of a schema.
func hasType(kind string, value any) bool {
	switch v := value.(type) {
	case string:
		return kind == spec.TypeString
	case bool:
		return kind == spec.TypeBoolean
	case float64:
		return kind == spec.TypeNumber || kind == spec.TypeInteger && v == math.Trunc(v)
	}
	return false
}

// checkAnyOf returns nil if the value matches at least one of the schemas.
func (all schemas) checkAnyOf(choices []*spec.Schema, value any, path string) (err error) {
	for _, choice := range choices {
		if err = all.check(choice, value, path); err == nil {
			return nil
		}
	}
	return err
}

// checkFields validates the fields of an object, and returns an error for a field that the schema lacks.
func (all schemas) checkFields(schema *spec.Schema, o map[string]any, path string) error {
	if schema.Type != spec.TypeObject {
		return fmt.Errorf("%s: an object is no %s", path, schema.Type)
	}
	for name, value := range o {
		field, known := schema.Properties[name]
		if !known && len(schema.Properties) > 0 {
			return fmt.Errorf("%s: there is no field %s", path, name)
		}
		if known {
			if err := all.check(field, value, path+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}
