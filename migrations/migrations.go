// Package migrations contains the schema as numbered SQL files, which package
// db applies in order. A released file never changes, because each database
// stores the digests of the files that were applied to it.
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

// Digests returns the first 8 bytes of the SHA-256 of each migration as hexadecimal text, by the migration's number.
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
