// Package migrations is the schema's only home: numbered SQL files, applied in
// order by package db. A released file never changes: a database knows which
// ones made it.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// Files holds the numbered migrations.
//
//go:embed *.sql
var Files embed.FS

// Digests returns the SHA-256 of each migration, by number, which identify the migrations.
func Digests() (map[int64]string, error) {
	entries, err := Files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	digests := make(map[int64]string, len(entries))
	for _, entry := range entries {
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, err
		}
		content, err := Files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		digests[version] = hex.EncodeToString(sum[:8])
	}
	return digests, nil
}
