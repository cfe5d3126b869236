package client

// Amounts and quantities are json.Number, so that none of their digits is lost.
//
//go:generate go tool -modfile=../dev/tools/go.mod oapi-codegen -config generate.yaml ../api/openapi.json
