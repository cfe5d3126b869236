package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// statementSchema is the file with the JSON Schema of the message usage.statement.
const statementSchema = "usage.statement.schema.json"

const components = "#/components/schemas/"

// messageSchema returns a self-contained JSON Schema of a message.
func messageSchema(document []byte, message string) (string, error) {
	var parsed struct {
		Webhooks   map[string]pathItem `json:"webhooks"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		return "", err
	}
	sent := parsed.Webhooks[message].Post
	if sent == nil {
		return "", fmt.Errorf("there is no message %s", message)
	}
	root := sent.RequestBody.Content["application/json"].Schema.name()
	definitions := make(map[string]json.RawMessage)
	for names := []string{root}; len(names) > 0; names = names[1:] {
		text, known := parsed.Components.Schemas[names[0]]
		if !known || definitions[names[0]] != nil {
			continue
		}
		var of schema
		if err := json.Unmarshal(text, &of); err != nil {
			return "", err
		}
		names = append(names, of.references()...)
		definitions[names[0]] = json.RawMessage(strings.ReplaceAll(string(text), components, "#/$defs/"))
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": message, "description": sent.Summary,
		"$ref": "#/$defs/" + root, "$defs": definitions,
	})
	return encoded.String(), err
}
