package api

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/odometer-metering/odometer/dashboard"
	"github.com/odometer-metering/odometer/metering"
)

// dashboardPolicy is the Content-Security-Policy of the dashboard. It allows connections to this API only. %s is
// the nonce of the response, which scripts need to create styles.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// registerDashboard registers the files of the dashboard. Except for /, the URLs of screens have no routes:
// server.lost serves their page if isScreen returns true.
func (s *server) registerDashboard() {
	files, built := dashboard.Files()
	if !built {
		s.screen = func(w http.ResponseWriter, r *http.Request) { answerPage(w, r, dashboard.Placeholder) }
		s.mux.HandleFunc("GET /{$}", s.screen)
		return
	}
	s.screen = s.screenOf(files)
	s.mux.HandleFunc("GET /{$}", s.screen)
	s.mux.HandleFunc("GET /icon.svg", s.fileOf(files, "max-age=3600"))
	s.mux.HandleFunc("GET /scheme.js", s.fileOf(files, "max-age=3600"))
	// The name of an asset changes with its content.
	s.mux.HandleFunc("GET /assets/{file}", s.fileOf(files, "public, max-age=31536000, immutable"))
}

// isScreen reports whether a browser requests a screen of the dashboard. A screen can have any path outside /v1/.
// Other requests for unknown paths get an error.
func isScreen(r *http.Request) bool {
	return acceptsHTML(r) && !strings.HasPrefix(r.URL.Path, "/v1/")
}

// acceptsHTML reports whether a browser requests a page: the request is a GET or HEAD that accepts HTML.
func acceptsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// screenOf returns a handler that serves index.html, the page that contains all screens.
func (s *server) screenOf(files fs.FS) http.HandlerFunc {
	page, err := fs.ReadFile(files, "index.html")
	return func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		answerPage(w, r, page)
	}
}

// answerPage serves a page with a new nonce in the page and in its Content-Security-Policy.
func answerPage(w http.ResponseWriter, r *http.Request, page []byte) {
	nonce := rand.Text()
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(dashboardPolicy, nonce))
	w.Header().Set("Referrer-Policy", "no-referrer")
	answerFile(w, r, "index.html", []byte(strings.ReplaceAll(string(page), "{{nonce}}", nonce)))
}

// fileOf returns a handler that serves the file at the request's path. The file is compressed if a compressed
// form exists and the client accepts gzip.
func (s *server) fileOf(files fs.FS, cached string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		content, err := fs.ReadFile(files, name)
		if err != nil {
			s.refuse(w, r, metering.Errorf(metering.CodeNotFound, "there is no such path"))
			return
		}
		if compressed, err := fs.ReadFile(files, name+".gz"); err == nil {
			w.Header().Set("Vary", "Accept-Encoding")
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				w.Header().Set("Content-Encoding", "gzip")
				content = compressed
			}
		}
		w.Header().Set("Cache-Control", cached)
		answerFile(w, r, name, content)
	}
}
