// Package dashboard holds the dashboard as it was built into this program. It
// is written in TypeScript, in src, and uses the public API and nothing else.
package dashboard

import (
	"embed"
	"io/fs"
)

// dist has what `npm run build` makes in the folder built, which is not
// committed, and a page for programs that are built without it, as by
// `go build` where there is no Node.
//
//go:embed dist
var dist embed.FS

// Files are what browsers get: index.html, in which {{nonce}} stands where a
// nonce belongs, and what it refers to. What lies in assets has a hash of its
// content in its name, and stands there compressed too, as name.gz.
func Files() (files fs.FS, built bool) {
	files, err := fs.Sub(dist, "dist/built")
	if err != nil {
		panic(err) // the path is well formed
	}
	_, err = fs.Stat(files, "index.html")
	return files, err == nil
}

// Placeholder is the page for when the dashboard is not built.
//
//go:embed dist/placeholder.html
var Placeholder []byte
