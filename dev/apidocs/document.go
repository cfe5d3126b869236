package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/odometer-metering/odometer/api"
)

// openAPI is the part of an OpenAPI document that the pages show.
type openAPI struct {
	Paths      map[string]pathItem `json:"paths"`
	Webhooks   map[string]pathItem `json:"webhooks"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

// pathItem is a path of the document with its operations, or a message with the operation Post.
type pathItem struct {
	Get    *operation `json:"get"`
	Post   *operation `json:"post"`
	Put    *operation `json:"put"`
	Patch  *operation `json:"patch"`
	Delete *operation `json:"delete"`
}

//nolint:tagliatelle // the names are those of OpenAPI
type operation struct {
	Summary     string          `json:"summary"`
	Description string          `json:"description"`
	Parameters  []parameter     `json:"parameters"`
	RequestBody *body           `json:"requestBody"`
	Responses   map[string]body `json:"responses"`
	Permission  api.Permission  `json:"x-permission"`
	Heavy       bool            `json:"x-heavy"`

	method, path string
}

// title returns the heading of the operation.
func (o operation) title() string { return o.method + " " + o.path }

// parameter is a parameter of an operation. In is its place: path, query or header.
type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Schema      schema `json:"schema"`
}

// body is the body of a request or a response, by media type.
type body struct {
	Content map[string]struct {
		Schema schema `json:"schema"`
	} `json:"content"`
}

//nolint:tagliatelle // the names are those of OpenAPI
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 types             `json:"type"`
	Format               string            `json:"format"`
	Description          string            `json:"description"`
	Properties           map[string]schema `json:"properties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	AnyOf                []schema          `json:"anyOf"`
	OneOf                []schema          `json:"oneOf"`
	Enum                 []any             `json:"enum"`
	ExtensibleEnum       []any             `json:"x-extensible-enum"`
	Default              json.RawMessage   `json:"default"`
	Minimum              *json.Number      `json:"minimum"`
	Maximum              *json.Number      `json:"maximum"`
	MinLength            int               `json:"minLength"`
	MaxLength            int               `json:"maxLength"`
	MinItems             int               `json:"minItems"`
	MaxItems             int               `json:"maxItems"`
	AdditionalProperties additional        `json:"additionalProperties"`
}

// name returns the name of the referenced schema.
func (s schema) name() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// references returns the names of the schemas that s refers to directly.
func (s schema) references() (names []string) {
	if s.Ref != "" {
		return []string{s.name()}
	}
	for _, part := range slices.Concat(s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.Properties))) {
		names = append(names, part.references()...)
	}
	for _, part := range []*schema{s.Items, s.AdditionalProperties.of} {
		if part != nil {
			names = append(names, part.references()...)
		}
	}
	return names
}

// types is the value of the JSON Schema keyword type: one JSON type or a list of them.
type types []string

// UnmarshalJSON reads one type or a list of types.
func (t *types) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = make([]string, 1)
	return json.Unmarshal(text, &(*t)[0])
}

// additional is the value of the JSON Schema keyword additionalProperties: a bool or a schema. of is nil for a
// bool.
type additional struct{ of *schema }

// UnmarshalJSON reads a schema, and ignores a bool.
func (a *additional) UnmarshalJSON(text []byte) error {
	if text[0] == '{' {
		return json.Unmarshal(text, &a.of)
	}
	return nil
}

// operations returns all operations, sorted by path and then by method.
func operations(paths map[string]pathItem) (all []operation) {
	for path, item := range paths {
		for method, o := range map[string]*operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if o != nil {
				named := *o
				named.method, named.path = method, path
				all = append(all, named)
			}
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(slices.Index(methods, a.method), slices.Index(methods, b.method)))
	})
	return all
}

// methods is the order of operations with the same path.
var methods = []string{"POST", "GET", "PUT", "PATCH", "DELETE"}
