// Package dashboard holds the dashboard as it was built into this program. It
// is written in TypeScript, in src, and uses the public API and nothing else.
package dashboard

import (
	"embed"
	"io/fs"
)

// dist contains the output of `npm run build` in the folder built, which is not
// committed, and a page for programs that are built without it, for example by
// `go build` on a machine without Node.
//
//go:embed dist
var dist embed.FS

// Files returns the files for browsers: index.html, with {{nonce}} in the places
// of the nonce, and the files that it refers to. A file in assets has a hash of
// its content in its name, and a compressed copy, name.gz. built is false if the
// program was built without the dashboard.
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
