package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// loaded is the type-checked code of a folder without its tests.
type loaded struct {
	set     *token.FileSet
	types   *types.Package
	info    *types.Info
	trees   []*ast.File
	sources [][]byte
}

// load parses and type-checks the folder.
func load(ctx context.Context, folder string) (l loaded, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return l, err
	}
	l = loaded{set: token.NewFileSet(), info: &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return l, err
		}
		tree, err := parser.ParseFile(l.set, file, source, 0)
		if err != nil {
			return l, err
		}
		l.trees, l.sources = append(l.trees, tree), append(l.sources, source)
	}
	exports, err := exportsOf(ctx, folder)
	if err != nil {
		return l, err
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(l.set, "gc", open)}
	l.types, err = config.Check(folder, l.set, l.trees, l.info)
	return l, err
}

// exportsOf returns the export data files of the folder's dependencies, by import path.
func exportsOf(ctx context.Context, folder string) (map[string]string, error) {
	output, err := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "./"+folder).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(output)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return exports, nil
}
