// Package contract says whether what the service sends is what its OpenAPI
// document describes.
package contract

import (
	"encoding/json"
	"fmt"
	"path"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

// messages are the schemas of each type of message.
var messages = sync.OnceValues(func() (map[string][]*openapi3.SchemaRef, error) {
	v31, _, err := api.Documents(registry.New(providers.Guard{}, ""))
	if err != nil {
		return nil, err
	}
	var document struct {
		Webhooks map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct {
							reference
							OneOf []reference `json:"oneOf"`
						} `json:"schema"`
					} `json:"content"`
				} `json:"requestBody"`
			} `json:"post"`
		} `json:"webhooks"`
	}
	if err := json.Unmarshal(v31, &document); err != nil {
		return nil, err
	}
	components, err := openapi3.NewLoader().LoadFromData(v31)
	if err != nil {
		return nil, err
	}
	schemas := map[string][]*openapi3.SchemaRef{}
	for kind, item := range document.Webhooks {
		body := item.Post.RequestBody.Content["application/json"].Schema
		for _, one := range append(body.OneOf, body.reference) {
			if one.Ref != "" {
				schemas[kind] = append(schemas[kind], components.Components.Schemas[path.Base(one.Ref)])
			}
		}
	}
	return schemas, nil
})

type reference struct {
	Ref string `json:"$ref"`
}

// Message says how a message differs from what the document describes of its type.
func Message(body []byte) error {
	schemas, err := messages()
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	var message struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return err
	}
	err = fmt.Errorf("the document has no message of type %q", message.Type)
	for _, schema := range schemas[message.Type] {
		if err = schema.Value.VisitJSON(value); err == nil {
			return nil
		}
	}
	return err
}
