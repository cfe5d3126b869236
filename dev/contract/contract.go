// Package contract checks that the messages of the service match its OpenAPI document.
package contract

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

// document loads the OpenAPI document of the service, and closes its schemas.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	v31, _, err := api.Documents(registry.New(providers.Guard{}, ""))
	if err != nil {
		return nil, err
	}
	described, err := openapi3.NewLoader().LoadFromData(v31)
	if err != nil {
		return nil, err
	}
	Close(described)
	return described, nil
})

// Close makes the schemas of a document reject fields that they do not name. Clients accept additional
// fields in a response, but a test must notice a field that the document lacks.
func Close(document *openapi3.T) {
	for _, schema := range document.Components.Schemas {
		open := schema.Value.AdditionalProperties.Has != nil || schema.Value.AdditionalProperties.Schema != nil
		if schema.Value.Type.Is("object") && !open {
			schema.Value.AdditionalProperties.Has = new(false)
		}
	}
}

// Message returns an error if the message differs from the document's schema for its type.
func Message(body []byte) error {
	described, err := document()
	if err != nil {
		return err
	}
	var message struct {
		Type string `json:"type"`
	}
	var value any
	if err := json.Unmarshal(body, &message); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	item := described.Webhooks[message.Type]
	if item == nil {
		return fmt.Errorf("the document has no message of type %q", message.Type)
	}
	return item.Post.RequestBody.Value.Content["application/json"].Schema.Value.VisitJSON(value)
}
