// Apidocs writes the reference parts of docs/api from the OpenAPI document. Markers in a page select its
// operations and messages:
//
//	<!-- generated: operations /v1/events -->
//	<!-- end -->
//
// Each operation and each message must be on exactly one page. Apidocs also writes the JSON Schema of
// statements to the same folder.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../../api/openapi.json ../../docs/api

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: apidocs DOCUMENT FOLDER")
		os.Exit(2)
	}
	if err := writePages(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs:", err)
		os.Exit(1)
	}
}

// writePages reads the document and the pages in the folder, and writes each file that has changed.
func writePages(documentPath, folder string) error {
	encoded, err := os.ReadFile(documentPath)
	if err != nil {
		return err
	}
	document, texts, err := readInput(encoded, folder)
	if err != nil {
		return err
	}
	pages, err := generate(document, texts)
	if err != nil {
		return err
	}
	if pages[statementSchema], err = messageSchema(encoded, "usage.statement"); err != nil {
		return err
	}
	for name, text := range pages {
		if text == texts[name] {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// readInput returns the document, and the text of each page by its file name.
func readInput(encoded []byte, folder string) (document openAPI, texts map[string]string, err error) {
	if err := json.Unmarshal(encoded, &document); err != nil {
		return openAPI{}, nil, fmt.Errorf("decode the document: %w", err)
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		return openAPI{}, nil, err
	}
	texts = make(map[string]string, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return openAPI{}, nil, err
		}
		texts[filepath.Base(path)] = string(text)
	}
	return document, texts, nil
}
