package lint_test

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsPicturesAreThereAndSmall checks that the pages show each picture in docs/pictures, and that each picture is
// at most 120 KB large and 1280 pixels wide.
func TestDocsPicturesAreThereAndSmall(t *testing.T) {
	pages := read(t, "README.md") + read(t, "docs/operators.md") + read(t, "docs/guides/start-from-a-template.md") + read(t, "docs/guides/break-usage-down.md")
	shown := regexp.MustCompile(`!\[[^\]]+\]\((?:docs/|\.\./)?(pictures/\S+?\.png)\)`).FindAllStringSubmatch(pages, -1)
	kept, err := filepath.Glob("docs/pictures/*")
	require.NoError(t, err)
	require.Len(t, shown, len(kept))
	for _, picture := range shown {
		text, err := os.ReadFile(filepath.Join("docs", picture[1]))
		require.NoError(t, err)
		require.Less(t, len(text), 120<<10, picture[1])
		config, err := png.DecodeConfig(bytes.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, 1280, config.Width, picture[1])
	}
}

// TestEachLinkOfTheDocumentsResolves checks relative links, and anchors by GitHub's rule for headings.
func TestEachLinkOfTheDocumentsResolves(t *testing.T) {
	t.Parallel()
	links := 0
	for _, path := range filesLike(t, "*.md", ":!:*/testdata/*") {
		for _, link := range linked.FindAllStringSubmatch(code.ReplaceAllString(read(t, path), ""), -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, ":") {
				continue // an address on the web
			}
			links++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
				_, err := os.Stat(to)
				require.NoError(t, err, "%s links to %s", path, link[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(read(t, to)), anchor, "%s links to %s", path, link[1])
			}
		}
	}
	require.NotZero(t, links)
}

// TestEachDiagramIsWrittenLineByLine finds diagrams that were wrapped like text. Mermaid does not draw a
// wrapped diagram.
func TestEachDiagramIsWrittenLineByLine(t *testing.T) {
	t.Parallel()
	diagrams := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			for _, first := range regexp.MustCompile("(?m)^```mermaid\n(.*)$").FindAllStringSubmatch(string(text), -1) {
				require.Regexp(t, `^(sequenceDiagram|stateDiagram-v2|flowchart (LR|TD))$`, first[1], page)
				diagrams++
			}
		}
	}
	require.NotZero(t, diagrams)
}

// TestDocumentsNameExistingFilesAndTests checks pages about the code. Each file and each test that such a
// page names in a code span must exist.
func TestDocumentsNameExistingFilesAndTests(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/architecture/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "CONTRIBUTING.md", "docs/operating/bounds.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		names := regexp.MustCompile("`((?:[a-z.][\\w.-]*/)+[\\w.-]*|Test\\w+)`").FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1)
		for _, name := range names {
			if strings.HasPrefix(name[1], "Test") {
				found, err := exec.CommandContext(t.Context(), "git", "grep", "-l", "--untracked", "func "+name[1]+"(").CombinedOutput()
				require.NoError(t, err, "%s: %s: %s", page, name[1], found)
				continue
			}
			_, err := os.Stat(name[1])
			require.NoError(t, err, page)
		}
	}
}

// TestQuotedMessagesExist checks that the code contains the messages that pages quote. If a quote contains
// "…", the code must contain each part around it.
func TestQuotedMessagesExist(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for _, path := range goFiles(t) {
		sources.WriteString(concatenated.ReplaceAllString(read(t, path), ""))
	}
	quotes := 0
	for _, page := range []string{"operators.md", "stripe.md", "operating/alerts.md", "operating/monitoring.md", "operating/troubleshoot.md"} {
		text := code.ReplaceAllString(read(t, "docs/"+page), "")
		for _, quote := range regexp.MustCompile(`"([^"\n]+)"`).FindAllStringSubmatch(text, -1) {
			quotes++
			for part := range strings.SplitSeq(quote[1], "…") {
				if !strings.Contains(sources.String(), strings.TrimSpace(part)) {
					t.Errorf("docs/%s quotes %q, which no code says: update the page", page, quote[1])
				}
			}
		}
	}
	require.NotZero(t, quotes)
}

// goFiles returns the Go files of the repository, except those of tests.
func goFiles(t *testing.T) []string {
	t.Helper()
	return filesLike(t, "*.go", ":!:*_test.go")
}

// filesLike returns the files of the repository that match the pathspecs of Git.
func filesLike(t *testing.T, pathspecs ...string) []string {
	t.Helper()
	list := append([]string{"ls-files", "-co", "--exclude-standard", "--"}, pathspecs...)
	listed, err := exec.CommandContext(t.Context(), "git", list...).Output()
	require.NoError(t, err)
	return strings.Fields(string(listed))
}

var (
	// concatenated matches the end and the start of two concatenated strings.
	concatenated = regexp.MustCompile(`" \+\n?\s*"`)

	linked  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	code    = regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`\n]*`")
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`\]\([^)]*\)|[^\p{L}\p{N}_\- ]`) // the target of a link, and punctuation
)

// anchors returns the anchors of a page's headings. GitHub numbers repeated anchors.
func anchors(page string) (all []string) {
	seen := make(map[string]int)
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")
		if seen[anchor]++; seen[anchor] > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, seen[anchor]-1)
		}
		all = append(all, anchor)
	}
	return all
}

// TestDocumentedNginxConfigRequiresLoginToTemporalUI checks the text of the nginx configuration in
// docs/operating/temporal.md. It does not run nginx, because not every machine has nginx.
func TestDocumentedNginxConfigRequiresLoginToTemporalUI(t *testing.T) {
	t.Parallel()
	_, after, found := strings.Cut(read(t, "docs/operating/temporal.md"), "```nginx\n")
	require.True(t, found)
	config, _, _ := strings.Cut(after, "```\n")
	require.Equal(t, strings.Count(config, "{"), strings.Count(config, "}"))
	for line := range strings.Lines(config) {
		directive, _, _ := strings.Cut(strings.TrimSpace(line), "#")
		require.Regexp(t, `^$|[;{}]\s*$`, directive, "each directive ends")
	}
	servers := strings.Split(config, "\nserver {")[1:]
	require.Len(t, servers, 2)
	shown, _, _ := strings.Cut(servers[0], "location")
	for _, directive := range []string{"listen 443 ssl;", "ssl_certificate ", "ssl_certificate_key ", `auth_basic "operators";`, "auth_basic_user_file ", "access_log "} {
		require.Contains(t, shown, directive, "for every path of the UI")
	}
	require.Contains(t, config, "$remote_user", "the log says who")
	require.NotContains(t, config, "auth_basic off")
	require.Equal(t, []string{"proxy_pass http://127.0.0.1:8233;"}, regexp.MustCompile(`proxy_pass [^;]*;`).FindAllString(config, -1))
	require.NotContains(t, servers[1], "proxy_pass", "without TLS there is nothing but a redirect")
}
