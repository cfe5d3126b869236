package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// marker matches a marker with the generated part below it: the start, the name, the arguments and the end.
	marker  = regexp.MustCompile(`(?s)(<!-- generated: (\w+)([^>]*?) -->\n).*?(<!-- end -->\n)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	// dropped matches the characters that GitHub removes from anchors.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// index is the file name of the page that links to all other pages.
const index = "README.md"

// page is a page of the reference with the contents that its markers select.
type page struct {
	name       string
	text       string
	operations []operation
	messages   []string
	objects    []string // in the order of their names
	hasErrors  bool
	hasObjects bool
}

// site is the set of all pages.
type site struct {
	document openAPI
	pages    []*page
	owner    map[string]string // file name of the page that describes a schema, by schema name
	sent     map[string]bool   // names of the schemas that request bodies use
}

// generate returns the pages with new generated parts.
func generate(document openAPI, texts map[string]string) (map[string]string, error) {
	s := &site{document: document, owner: make(map[string]string), sent: make(map[string]bool)}
	names, err := inIndexOrder(texts)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s.pages = append(s.pages, &page{name: name, text: texts[name]})
	}
	if err := errors.Join(s.placeOperations(), s.placeMessages()); err != nil {
		return nil, err
	}
	s.placeObjects()

	written := make(map[string]string, len(texts))
	for _, p := range s.pages {
		if len(p.objects) > 0 && !p.hasObjects {
			return nil, fmt.Errorf("%s needs the marker <!-- generated: objects --> for %s", p.name, strings.Join(p.objects, ", "))
		}
		text, err := s.write(p)
		if err != nil {
			return nil, err
		}
		if err := checkHeadings(p.name, text); err != nil {
			return nil, err
		}
		written[p.name] = text
	}
	return written, nil
}

// inIndexOrder returns the names of the pages in the order in which the index links to them.
func inIndexOrder(texts map[string]string) ([]string, error) {
	place := make(map[string]int, len(texts))
	for name := range texts {
		place[name] = strings.Index(texts[index], "]("+name+")")
		if place[name] < 0 && name != index {
			return nil, fmt.Errorf("%s does not link to %s", index, name)
		}
	}
	return slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return cmp.Compare(place[a], place[b]) }), nil
}

// placeOperations assigns each operation to the page with the longest matching path.
func (s *site) placeOperations() (err error) {
	prefixes := make(map[string]*page)
	for _, p := range s.pages {
		for _, m := range marker.FindAllStringSubmatch(p.text, -1) {
			arguments := strings.Fields(m[3])
			switch m[2] {
			case "operations":
				for _, prefix := range arguments {
					if other := prefixes[prefix]; other != nil {
						err = errors.Join(err, fmt.Errorf("%s is on %s and on %s", prefix, other.name, p.name))
					}
					prefixes[prefix] = p
				}
			case "messages":
				p.messages = append(p.messages, arguments...)
			case "errors":
				p.hasErrors = true
			case "objects":
				p.hasObjects = true
			}
		}
	}
	used := make(map[string]bool)
	for _, o := range operations(s.document.Paths) {
		longest := ""
		for prefix := range prefixes {
			if (o.path == prefix || strings.HasPrefix(o.path, prefix+"/")) && len(prefix) > len(longest) {
				longest = prefix
			}
		}
		if longest == "" {
			err = errors.Join(err, fmt.Errorf("%s is on no page: name its path in a marker <!-- generated: operations … -->", o.title()))
			continue
		}
		used[longest] = true
		prefixes[longest].operations = append(prefixes[longest].operations, o)
	}
	for prefix, p := range prefixes {
		if !used[prefix] {
			err = errors.Join(err, fmt.Errorf("%s: no operation has the path %s", p.name, prefix))
		}
	}
	return err
}

// placeMessages checks that each message is on exactly one page.
func (s *site) placeMessages() (err error) {
	on := make(map[string][]string)
	for _, p := range s.pages {
		for _, message := range p.messages {
			on[message] = append(on[message], p.name)
			if s.document.Webhooks[message].Post == nil {
				err = errors.Join(err, fmt.Errorf("%s: there is no message %s", p.name, message))
			}
		}
	}
	for message := range s.document.Webhooks {
		if len(on[message]) != 1 {
			err = errors.Join(err, fmt.Errorf("the message %s is on the pages %v: it has to be on one", message, on[message]))
		}
	}
	return err
}

// placeObjects assigns each object to one page. An operation or message of that page reaches the object by the
// fewest references between schemas. If several pages are equal, the first page in the order of the index gets
// the object.
func (s *site) placeObjects() {
	reached := make([]map[string]bool, len(s.pages))
	edges := make([][]string, len(s.pages))
	for i, p := range s.pages {
		reached[i], edges[i] = make(map[string]bool), s.roots(p)
	}
	for slices.ContainsFunc(edges, func(names []string) bool { return len(names) > 0 }) {
		for i, p := range s.pages {
			var next []string
			for _, name := range edges[i] {
				if reached[i][name] {
					continue
				}
				reached[i][name] = true
				if s.owner[name] == "" {
					s.owner[name] = p.name
					p.objects = append(p.objects, name)
				}
				next = append(next, s.document.Components.Schemas[name].references()...)
			}
			edges[i] = next
		}
	}
	for _, p := range s.pages {
		slices.Sort(p.objects)
	}
}

// roots returns the objects that the operations and messages of a page refer to directly. It also records the objects
// of request bodies in s.sent.
func (s *site) roots(p *page) (names []string) {
	for _, o := range p.operations {
		if o.RequestBody != nil {
			for _, content := range o.RequestBody.Content {
				for _, name := range content.Schema.references() {
					names = append(names, name)
					s.markSent(name)
				}
			}
		}
		for status, response := range o.Responses {
			if !isSuccess(status) {
				continue
			}
			for _, content := range response.Content {
				names = append(names, content.Schema.references()...)
			}
		}
	}
	for _, message := range p.messages {
		for _, content := range s.document.Webhooks[message].Post.RequestBody.Content {
			names = append(names, content.Schema.references()...)
		}
	}
	if p.hasErrors {
		names = append(names, "Problem")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// markSent adds a schema of a request body to s.sent, with all schemas that it refers to.
func (s *site) markSent(name string) {
	if s.sent[name] {
		return
	}
	s.sent[name] = true
	for _, part := range s.document.Components.Schemas[name].references() {
		s.markSent(part)
	}
}

// isSuccess reports whether a status is 2xx or 3xx.
func isSuccess(status string) bool { return status[0] == '2' || status[0] == '3' }

// write returns the text of a page with new generated parts.
func (s *site) write(p *page) (string, error) {
	var err error
	text := marker.ReplaceAllStringFunc(p.text, func(found string) string {
		m := marker.FindStringSubmatch(found)
		var part string
		switch m[2] {
		case "operations":
			part = s.operationsPart(p)
		case "messages":
			part = s.messagesPart(p)
		case "objects":
			part = s.objectsPart(p)
		case "errors":
			part = errorsPart()
		default:
			err = errors.Join(err, fmt.Errorf("%s: nothing is generated for the marker %q", p.name, m[2]))
		}
		return m[1] + "\n" + part + "\n" + m[4]
	})
	markers := len(marker.FindAllString(p.text, -1))
	if strings.Count(p.text, "<!-- generated:") != markers || strings.Count(p.text, "<!-- end -->") != markers {
		err = errors.Join(err, fmt.Errorf("%s: a marker <!-- generated: … --> lacks its <!-- end -->", p.name))
	}
	return text, err
}

// checkHeadings returns an error if two headings have the same anchor, because links could not distinguish
// them.
func checkHeadings(name, text string) error {
	seen := make(map[string]bool)
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		anchor := anchorOf(found[1])
		if seen[anchor] {
			return fmt.Errorf("%s has two headings %q", name, found[1])
		}
		seen[anchor] = true
	}
	return nil
}

// anchorOf returns the anchor of a heading by GitHub's rule.
func anchorOf(text string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
}
