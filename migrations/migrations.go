// Package migrations is the schema's only home: numbered SQL files, applied in
// order by package db. A released file never changes.
package migrations

import "embed"

// Files holds the numbered migrations.
//
//go:embed *.sql
var Files embed.FS
