// Package client is the Go client of Odometer's API, generated from its
// OpenAPI document. Amounts and quantities are json.Number, so that none of
// their digits is lost.
package client

//go:generate go tool -modfile=../dev/tools/go.mod oapi-codegen -config generate.yaml ../api/openapi.json
