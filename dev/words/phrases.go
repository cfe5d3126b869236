package words

import "regexp"

// Phrase is a form of words that makes readers read a sentence twice.
type Phrase struct {
	Pattern *regexp.Regexp
	Use     string
}

// Phrases are the forms that a pattern finds without false matches.
var Phrases = []Phrase{
	{regexp.MustCompile(`\b(?:is|are) (?:401|403|404|405|409|410|413|415|422|429|503)(?:[.,;:]| and\b| if\b| with\b|$)`), `"returns 422"`},
	{regexp.MustCompile(`(?:^|[.!?] )Of [^.]{0,80},`), "the subject first"},
	{regexp.MustCompile("\\b(?:another|other) [\\w`]+ than\\b"), `"differs from" or "except"`},
	{regexp.MustCompile(`\ba (?:minute|second|hour|day) of an?\b`), `"a minute per"`},
}

// PhrasesIn returns the phrases in a paragraph, each with its replacement.
func PhrasesIn(paragraph string) (found []string) {
	for _, phrase := range Phrases {
		if text := phrase.Pattern.FindString(paragraph); text != "" {
			found = append(found, text+": write "+phrase.Use)
		}
	}
	return found
}
