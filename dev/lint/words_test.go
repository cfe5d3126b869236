package lint_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/lint"
)

// TestRetiredWordsAreGone checks identifiers, columns, JSON fields, documents and file names.
func TestRetiredWordsAreGone(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "testdata" || entry.Name() == "node_modules") {
			return fs.SkipDir
		}
		path = filepath.ToSlash(path)
		if entry.IsDir() || strings.HasPrefix(path, "dev/lint/") {
			return nil
		}
		found := retired(t, path)
		for _, word := range found {
			if !slices.Contains(rewriting[path], word) && !slices.Contains(otherMeaning[path], word) {
				t.Errorf("%s: %q is not used any more, see dev/lint/retired_words.go", path, word)
			}
		}
		for _, word := range rewriting[path] {
			if !slices.Contains(found, word) {
				t.Errorf("%s: %q is gone: take it off the list", path, word)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for path := range rewriting {
		require.FileExists(t, path, "take it off the list")
	}
}

var (
	codeBlock     = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	lineInside    = regexp.MustCompile(`\n {2,}`)
	generatedPart = regexp.MustCompile(`(?s)<!-- generated:.*?<!-- end -->`)
)

var (
	scriptComment = regexp.MustCompile(`(?m)^\s*(?://|/?\*+|--|#)\s?(.*)$|\s(?://|--)\s(.*)$`)
	hashComment   = regexp.MustCompile(`(?m)(?:^|\s)#{1,2}@?\s(.*)$`)
	directive     = regexp.MustCompile(`^(?:nolint|eslint|go:|@ts|!)`)
)

// TestCommentsNameActorsAndThings checks the comments of Go, TypeScript, SQL, shell and YAML files, and of the
// Makefile.
func TestCommentsNameActorsAndThings(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if entry.IsDir() {
			skipped := strings.HasPrefix(entry.Name(), ".") && path != "." || slices.Contains([]string{"testdata", "node_modules", "dist"}, entry.Name())
			if skipped {
				return fs.SkipDir
			}
			return nil
		}
		for _, comment := range commentsOf(t, path) {
			if found := lint.PhrasesInComment(comment); len(found) > 0 {
				t.Errorf("%s: %s: %q", path, strings.Join(found, "; "), comment)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// bareName matches function names that lack the object of their verb.
var bareName = regexp.MustCompile(`^(?:leave\w*|own|bill|so|said\w*|says|told|heed\w*|look\w*|saw|keep|over|taken|whose|others|elsewhere\w*|storing|looking|counting)$`)

// vagueTest matches the declaration of a test with a pronoun in place of a noun.
var vagueTest = regexp.MustCompile(`(?m)^func (Test\w*?(?:What|Whatever|Who|Whose|Whom|Nobody|Somebody)(?:[A-Z]\w*)?)\(`)

// TestNamesOfTestsHaveNouns checks that the name of each test has nouns for its subject and object.
func TestNamesOfTestsHaveNouns(t *testing.T) {
	t.Parallel()
	for _, path := range filesLike(t, "*_test.go") {
		for _, found := range vagueTest.FindAllStringSubmatch(read(t, path), -1) {
			t.Errorf("%s: write nouns in %s", path, found[1])
		}
	}
}

// TestFunctionsAreVerbAndObject checks the names of functions and methods, except those of tests.
func TestFunctionsAreVerbAndObject(t *testing.T) {
	t.Parallel()
	for _, path := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declared := range file.Decls {
			if f, is := declared.(*ast.FuncDecl); is && bareName.MatchString(f.Name.Name) {
				t.Errorf("%s: name %s by a verb and an object", path, f.Name.Name)
			}
		}
	}
}

// commentsOf returns the lines of a file's comments. It returns no lines for generated files and for other file
// types.
func commentsOf(t *testing.T, path string) (lines []string) {
	t.Helper()
	if strings.Contains(path, ".gen.") {
		return nil
	}
	switch ext := filepath.Ext(path); {
	case ext == ".go":
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, group := range file.Comments {
			lines = append(lines, strings.Split(strings.TrimSpace(group.Text()), "\n")...)
		}
	case slices.Contains([]string{".ts", ".tsx", ".sql", ".sh"}, ext):
		for _, found := range scriptComment.FindAllStringSubmatch(read(t, path), -1) {
			if comment := found[1] + found[2]; !directive.MatchString(comment) {
				lines = append(lines, comment)
			}
		}
	case slices.Contains([]string{".yml", ".yaml", ".toml", ".tpl"}, ext), path == "Makefile", path == "Dockerfile", ext == "" && strings.HasPrefix(path, "dev/"):
		for _, found := range hashComment.FindAllStringSubmatch(read(t, path), -1) {
			lines = append(lines, found[1])
		}
	}
	return lines
}

// TestDocumentsContainNoDiscouragedPhrases checks the documents, and the summaries and descriptions of the OpenAPI
// document.
func TestDocumentsContainNoDiscouragedPhrases(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		paths = append(paths, found...)
	}
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text := generatedPart.ReplaceAllString(codeBlock.ReplaceAllString(read(t, path), ""), "")
		text = strings.ReplaceAll(lineInside.ReplaceAllString(text, " "), "\n- ", "\n\n")
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			require.Empty(t, lint.PhrasesIn(strings.ReplaceAll(paragraph, "\n", " ")), "%s: %s", path, paragraph)
		}
	}
	var document any
	require.NoError(t, json.Unmarshal([]byte(read(t, "api/openapi.json")), &document))
	for _, text := range textsIn(document) {
		for line := range strings.Lines(text) {
			require.Empty(t, lint.PhrasesIn(strings.TrimPrefix(line, "- ")), "api/openapi.json: %s", line)
		}
	}
}

// textsIn returns the summaries and descriptions of a part of an OpenAPI document.
func textsIn(part any) (found []string) {
	switch part := part.(type) {
	case map[string]any:
		for key, value := range part {
			if text, ok := value.(string); ok && (key == "summary" || key == "description") {
				found = append(found, text)
			}
			found = append(found, textsIn(value)...)
		}
	case []any:
		for _, item := range part {
			found = append(found, textsIn(item)...)
		}
	}
	return found
}

// retired returns the retired words in a file and in its name.
func retired(t *testing.T, path string) []string {
	t.Helper()
	found := lint.In(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), lint.Anywhere)
	switch ext := filepath.Ext(path); {
	case ext == ".go":
		return append(found, inGo(t, path)...)
	case ext == ".sql":
		return append(found, inSQL(t, path)...)
	case ext == ".md":
		return append(found, lint.In(read(t, path), lint.Anywhere)...)
	case path == "api/openapi.json":
		var document any
		require.NoError(t, json.Unmarshal([]byte(read(t, path)), &document))
		return append(found, inJSON(document)...)
	}
	return found
}

// read returns the content of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// inGo returns the retired words in identifiers, field tags, and snake_case names in strings, such as columns
// in SQL.
func inGo(t *testing.T, path string) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.Ident:
			found = append(found, lint.In(n.Name, lint.Anywhere)...)
		case *ast.Field:
			if n.Tag != nil {
				found = append(found, inTag(n.Tag.Value)...)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, "_") {
				for _, name := range snake.FindAllString(n.Value, -1) {
					found = append(found, lint.In(name, lint.Anywhere)...)
				}
			}
		}
		return true
	})
	return found
}

// snake matches names in snake_case.
var snake = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)

// inTag returns the retired words in the names and the documentation of a field tag.
func inTag(literal string) (found []string) {
	tag, err := strconv.Unquote(literal)
	if err != nil {
		return nil
	}
	for _, key := range []string{"json", "query", "path"} {
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get(key), ",")
		found = append(found, lint.In(name, lint.Fields)...)
	}
	return append(found, lint.In(reflect.StructTag(tag).Get("doc"), lint.Anywhere)...)
}

var (
	sqlComment = regexp.MustCompile(`--.*`)
	sqlWord    = regexp.MustCompile(`(?m)^  ([a-z_]+)|[a-z]+(?:_[a-z]+)+`)
)

// inSQL returns the retired words in snake_case names, and in the first name of each line that is indented by two
// spaces, usually a column.
func inSQL(t *testing.T, path string) (found []string) {
	t.Helper()
	for _, name := range sqlWord.FindAllString(sqlComment.ReplaceAllString(read(t, path), ""), -1) {
		found = append(found, lint.In(name, lint.Fields)...)
	}
	return found
}

// inJSON returns the retired words in field names, summaries, descriptions and operation ids of the document.
func inJSON(node any) (found []string) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			if properties, ok := value.(map[string]any); ok && key == "properties" {
				for name := range properties {
					found = append(found, lint.In(name, lint.Fields)...)
				}
			}
			if text, ok := value.(string); ok && (key == "summary" || key == "description" || key == "operationId") {
				found = append(found, lint.In(text, lint.Anywhere)...)
			}
			found = append(found, inJSON(value)...)
		}
	case []any:
		for _, value := range n {
			found = append(found, inJSON(value)...)
		}
	}
	return found
}

// rewriting maps files of billing that are being rewritten to the retired words that they still contain.
var rewriting = map[string][]string{}

// otherMeaning maps files to retired words that have another meaning in them. The time of Stripe's test clocks is
// frozen, an attempt at a webhook has a problem, and OIDC identifies an account by its subject.
var otherMeaning = map[string][]string{
	"activities/deliver_webhooks.go":       {"problem"},
	"api/openapi.json":                     {"problem"},
	"api/webhooks.go":                      {"problem"},
	"client/client.gen.go":                 {"problem"},
	"migrations/00002_access.sql":          {"subject"},
	"migrations/00007_webhooks.sql":        {"problem"},
	"providers/stripe/contract_test.go":    {"frozen"},
	"providers/stripetest/catalog_test.go": {"frozen"},
	"providers/stripetest/test_clocks.go":  {"frozen"},
}
