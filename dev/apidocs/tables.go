package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/metering"
)

// operationsPart lists the operations of a page, and then describes each.
func (s *site) operationsPart(p *page) string {
	var text strings.Builder
	text.WriteString("| request | purpose | permission | response |\n|---|---|---|---|\n")
	for _, o := range p.operations {
		fmt.Fprintf(&text, "| [`%s`](#%s) | %s | %s | %s |\n", o.title(), anchorOf(o.title()), cell(o.Summary), permission(o.Permission), strings.Join(successes(o), ", "))
	}
	for _, o := range p.operations {
		fmt.Fprintf(&text, "\n#### %s\n\n%s\n", o.title(), wrapped(sentences(o.Summary, o.Description)))
		for _, fact := range s.facts(p, o) {
			text.WriteString(wrapped("- " + fact))
		}
		text.WriteString(s.parameters(p, o))
	}
	return text.String()
}

// facts lists the permission, the body, the answers and the headers of an operation.
func (s *site) facts(p *page, o operation) []string {
	facts := []string{"Permission: " + grantedTo(o.Permission)}
	if o.RequestBody != nil {
		facts = append(facts, "Body: "+s.contentOf(p, *o.RequestBody))
	}
	for _, status := range successes(o) {
		fact := "Response: " + status
		if content := s.contentOf(p, o.Responses[status]); content != "" {
			fact += ", " + content
		}
		facts = append(facts, fact)
	}
	for _, header := range o.Parameters {
		if header.In == "header" {
			facts = append(facts, fmt.Sprintf("Header: `%s`. %s", header.Name, sentences(header.Description)))
		}
	}
	if o.Heavy {
		facts = append(facts, "Heavy: can read all customers, [one at a time](README.md#limits) for each tenant")
	}
	return facts
}

// grantedTo names the scopes and roles that have a permission.
func grantedTo(p api.Permission) string {
	if p == api.Public {
		return "none, no credential is needed"
	}
	scopes, roles := p.Holders()
	return fmt.Sprintf("`%s` (scopes: %s; roles: %s)", p, quoted(scopes), quoted(roles))
}

// quoted returns a list of values, each in backquotes.
func quoted[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = "`" + string(value) + "`"
	}
	return strings.Join(texts, ", ")
}

// permission returns the permission for the table of operations.
func permission(p api.Permission) string {
	if p == api.Public {
		return "none"
	}
	return "`" + string(p) + "`"
}

// successes returns the statuses of successful responses, in ascending order.
func successes(o operation) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(o.Responses)), func(status string) bool { return !isSuccess(status) })
}

// contentOf names the objects of a body, or its media types.
func (s *site) contentOf(p *page, b body) string {
	var texts []string
	for _, media := range slices.Sorted(maps.Keys(b.Content)) {
		text := s.typeOf(p, b.Content[media].Schema)
		if media != "application/json" {
			text = "`" + media + "`"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " or ")
}

// parameters returns the table of the parameters in the path and in the query.
func (s *site) parameters(p *page, o operation) string {
	var text strings.Builder
	for _, in := range []string{"path", "query"} {
		for _, q := range o.Parameters {
			if q.In != in {
				continue
			}
			if text.Len() == 0 {
				text.WriteString("\n| parameter | in | type | required | meaning |\n|---|---|---|---|---|\n")
			}
			meaning := s.meaning(q.Schema, cmp.Or(q.Description, q.Schema.Description))
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", q.Name, in, s.typeOf(p, q.Schema), yes(q.Required), meaning)
		}
	}
	return text.String()
}

// messagesPart describes the messages of a page.
func (s *site) messagesPart(p *page) string {
	var text strings.Builder
	text.WriteString("| message | sent when | body |\n|---|---|---|\n")
	for _, message := range p.messages {
		o := s.document.Webhooks[message].Post
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", message, cell(sentences(o.Summary, o.Description)), s.contentOf(p, *o.RequestBody))
	}
	return text.String()
}

// objectsPart returns the tables of the fields of each object of a page.
func (s *site) objectsPart(p *page) string {
	var text strings.Builder
	for i, name := range p.objects {
		if i > 0 {
			text.WriteString("\n")
		}
		object := s.document.Components.Schemas[name]
		fmt.Fprintf(&text, "#### %s\n\n", objectTitle(name))
		if object.Description != "" {
			text.WriteString(wrapped(sentences(object.Description)) + "\n")
		}
		if len(object.AnyOf) > 0 {
			text.WriteString(wrapped("Either " + s.typeOf(p, object) + ".\n"))
			continue
		}
		if len(object.Properties) == 0 {
			text.WriteString("This object has no fields.\n")
			continue
		}
		presence := "always present"
		if s.sent[name] {
			presence = "required"
		}
		fmt.Fprintf(&text, "| field | type | %s | meaning |\n|---|---|---|---|\n", presence)
		for _, field := range slices.Sorted(maps.Keys(object.Properties)) {
			f := object.Properties[field]
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", field, s.typeOf(p, f), yes(slices.Contains(object.Required, field)), s.meaning(f, f.Description))
		}
	}
	return text.String()
}

// objectTitle returns the heading of an object, which differs from all other headings of a page.
func objectTitle(name string) string { return "The " + name + " object" }

// yes returns a bool as yes or no.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// typeOf names a type, and links to an object.
func (s *site) typeOf(p *page, f schema) string {
	switch {
	case f.Ref != "":
		name := f.name()
		target := "#" + anchorOf(objectTitle(name))
		if owner := s.owner[name]; owner != p.name {
			target = owner + target
		}
		return "[" + name + "](" + target + ")"
	case len(f.AnyOf)+len(f.OneOf) > 0:
		var names []string
		for _, part := range slices.Concat(f.AnyOf, f.OneOf) {
			names = append(names, s.typeOf(p, part))
		}
		return strings.Join(names, " or ")
	case len(f.Type) == 0:
		return "any"
	}
	names := make([]string, len(f.Type))
	for i, name := range f.Type {
		names[i] = name
		switch {
		case name == "array" && f.Items != nil:
			names[i] = "array of " + s.typeOf(p, *f.Items)
		case name == "object" && f.AdditionalProperties.of != nil:
			names[i] = "map of " + s.typeOf(p, *f.AdditionalProperties.of)
		case name == "number" && f.Format == "decimal":
			names[i] = "decimal"
		case name == "string" && f.Format == "date-time":
			names[i] = "time"
		}
	}
	return strings.Join(names, " or ")
}

// meaning describes a field: its text, its values, its default and its bounds.
func (s *site) meaning(f schema, description string) string {
	parts := []string{sentences(description)}
	values := slices.Concat(f.Enum, f.ExtensibleEnum)
	if f.Items != nil {
		values = append(values, f.Items.Enum...)
	}
	if len(values) == 1 {
		parts = append(parts, fmt.Sprintf("Always `%v`.", values[0]))
	} else if len(values) > 1 && !listsAll(description, values) {
		parts = append(parts, "One of "+listed(values)+".")
	}
	if len(f.Default) > 0 && string(f.Default) != `""` {
		parts = append(parts, "Default: `"+strings.Trim(string(f.Default), `"`)+"`.")
	}
	parts = append(parts, bounds(f))
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return cell(strings.Join(parts, "\n"))
}

// listsAll reports whether a text already contains all values.
func listsAll(text string, values []any) bool {
	return !slices.ContainsFunc(values, func(value any) bool { return !strings.Contains(text, fmt.Sprint(value)) })
}

// listed returns a list of JSON values, each in backquotes.
func listed(values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return quoted(texts)
}

// bounds returns the text of the minimum and maximum number, length or item count.
func bounds(f schema) string {
	switch {
	case f.Minimum != nil && f.Maximum != nil:
		return fmt.Sprintf("From %s to %s.", *f.Minimum, *f.Maximum)
	case f.Minimum != nil:
		return fmt.Sprintf("At least %s.", *f.Minimum)
	case f.Maximum != nil:
		return fmt.Sprintf("At most %s.", *f.Maximum)
	case f.MaxItems > 0 && f.MinItems > 0:
		return fmt.Sprintf("%d to %d items.", f.MinItems, f.MaxItems)
	case f.MaxItems > 0:
		return fmt.Sprintf("At most %d items.", f.MaxItems)
	case f.MaxLength > 0 && f.MinLength > 1:
		return fmt.Sprintf("%d to %d characters.", f.MinLength, f.MaxLength)
	case f.MaxLength > 0:
		return fmt.Sprintf("At most %d characters.", f.MaxLength)
	}
	return ""
}

// errorsPart returns the table of error codes.
func errorsPart() string {
	var text strings.Builder
	text.WriteString("| status | `code` | meaning and fix | retry unchanged? |\n|---|---|---|---|\n")
	for _, e := range api.ErrorCodes() {
		retry := "no"
		switch {
		case e.Code == metering.CodeInternal:
			retry = "only with an idempotency key"
		case e.Retry:
			retry = "yes, after `Retry-After` seconds"
		}
		fmt.Fprintf(&text, "| %d | `%s` | %s | %s |\n", e.Status, e.Code, cell(sentences(e.Title, e.Advice)), retry)
	}
	return text.String()
}

// sentences joins texts and ends each of them with a full stop.
func sentences(texts ...string) string {
	var ended []string
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if !strings.ContainsRune(".?!:", rune(text[len(text)-1])) {
			text += "."
		}
		ended = append(ended, text)
	}
	return strings.Join(ended, " ")
}

// width is the maximum line length of the documents, in characters.
const width = 100

// wrapped breaks the lines of a text at width. It indents the continuation lines of list items, and begins no
// continuation line with a Markdown marker of a list item or a heading.
func wrapped(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		length, indent := 0, ""
		if strings.HasPrefix(line, "- ") {
			indent = "  "
		}
		for i, word := range strings.Fields(line) {
			size := utf8.RuneCountInString(word)
			switch {
			case i == 0:
			case length+1+size > width && !blockStart.MatchString(word):
				out.WriteString("\n" + indent)
				length = len(indent)
			default:
				out.WriteString(" ")
				length++
			}
			out.WriteString(word)
			length += size
		}
		out.WriteString("\n")
	}
	return out.String()
}

// blockStart matches words that would begin a list item, a quotation or a heading at the start of a line.
var blockStart = regexp.MustCompile(`^([-+*>]|#+|\d+[.)])$`)

// cell returns a text on one line, for a cell of a table. The items of a list, and the text after a list,
// start with an HTML line break.
func cell(text string) string {
	var out strings.Builder
	inList := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		isItem := words[0] == "-"
		switch {
		case isItem:
			words[0] = "<br>•"
		case inList:
			words[0] = "<br>" + words[0]
		case out.Len() > 0:
			out.WriteString(" ")
		}
		out.WriteString(strings.Join(words, " "))
		inList = isItem
	}
	return strings.ReplaceAll(out.String(), "|", `\|`)
}
