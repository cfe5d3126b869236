package api

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/swaggest/swgui/v5/static"

	"github.com/odometer-metering/odometer/metering"
)

// docsHTML is the page of the API reference: Swagger UI, loaded from this origin only.
//
//go:embed docs.html
var docsHTML []byte

//go:embed docs.js
var docsScript []byte

// docsPolicy is the Content-Security-Policy of the API reference. It allows connections to this API only.
// Swagger UI loads its arrows and its logo from data: URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *server) registerDocs() {
	s.mux.HandleFunc("GET /docs", s.docs)
	s.mux.HandleFunc("GET /docs/docs.js", s.docsScript)
	s.mux.HandleFunc("GET /docs/{file}", s.docsAsset)
}

func (*server) docs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", docsPolicy)
	answerFile(w, r, "docs.html", docsHTML)
}

func (*server) docsScript(w http.ResponseWriter, r *http.Request) {
	answerFile(w, r, "docs.js", docsScript)
}

// docsAsset serves a file of Swagger UI, compressed if the client accepts gzip.
func (s *server) docsAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if plain, err := static.FS.ReadFile(name); err == nil && path.Ext(name) == ".png" {
		answerFile(w, r, name, plain)
		return
	}
	compressed, err := static.FS.ReadFile(name + ".gz")
	if err != nil {
		s.refuse(w, r, metering.Errorf(metering.CodeNotFound, "there is no such path"))
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		answerFile(w, r, name, compressed)
		return
	}
	text, err := uncompressed(compressed)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answerFile(w, r, name, text)
}

func uncompressed(text []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

func answerFile(w http.ResponseWriter, r *http.Request, name string, text []byte) {
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, err := w.Write(text); err != nil {
		exchangeOf(r.Context()).err = err
	}
}
