package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// docsTemplate is the reference for people: one page without scripts, so that
// it reads the same offline and under the strictest policy.
//
//go:embed docs.html
var docsTemplate string

var docsPage = template.Must(template.New("docs").Funcs(template.FuncMap{
	"operations": docsOperations,
	"name":       func(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] },
	"kind":       kindOf,
	"required": func(schema map[string]any, field string) bool {
		list, _ := schema["required"].([]any)
		return slices.Contains(list, any(field))
	},
}).Parse(docsTemplate))

type docsOperation struct {
	Method, Path string
	Of           map[string]any
}

// docsOperations lists a document's operations by tag, then path, then method.
func docsOperations(document map[string]any) []docsOperation {
	var list []docsOperation
	paths, _ := document["paths"].(map[string]any)
	for path, item := range paths {
		methods, _ := item.(map[string]any)
		for method, of := range methods {
			if operation, ok := of.(map[string]any); ok {
				list = append(list, docsOperation{strings.ToUpper(method), path, operation})
			}
		}
	}
	slices.SortFunc(list, func(a, b docsOperation) int {
		return strings.Compare(a.place(), b.place())
	})
	return list
}

func (o docsOperation) place() string { return fmt.Sprint(o.Of["tags"], " ", o.Path, " ", o.Method) }

// kindOf names a schema's type: "string", "integer or null", "array of Event".
func kindOf(schema map[string]any) string {
	if ref, ok := schema["$ref"].(string); ok {
		return ref[strings.LastIndexByte(ref, '/')+1:]
	}
	switch kind := schema["type"].(type) {
	case string:
		items, ok := schema["items"].(map[string]any)
		if kind == "array" && ok {
			return "array of " + kindOf(items)
		}
		if format, ok := schema["format"].(string); ok {
			return kind + " (" + format + ")"
		}
		return kind
	case []any:
		names := make([]string, len(kind))
		for i, name := range kind {
			names[i] = fmt.Sprint(name)
		}
		return strings.Join(names, " or ")
	}
	return "any"
}

// docs answers with the page, which is made once: routes never change.
func (s *server) docs() http.HandlerFunc {
	render := sync.OnceValues(func() ([]byte, error) {
		text, err := s.api.OpenAPI().MarshalJSON()
		if err != nil {
			return nil, err
		}
		var document map[string]any
		if err := json.Unmarshal(text, &document); err != nil {
			return nil, err
		}
		var page bytes.Buffer
		err = docsPage.Execute(&page, document)
		return page.Bytes(), err
	})
	return func(w http.ResponseWriter, r *http.Request) {
		page, err := render()
		if err != nil {
			s.refuse(w, r, fmt.Errorf("render docs: %w", err))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'")
		if _, err := w.Write(page); err != nil {
			exchangeOf(r.Context()).err = err
		}
	}
}

//go:embed docs.css
var docsStyle []byte

func (*server) docsStyle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	if _, err := w.Write(docsStyle); err != nil {
		exchangeOf(r.Context()).err = err
	}
}
