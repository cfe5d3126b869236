package words

import "regexp"

// Phrase is a form of words that makes a reader read a sentence twice.
type Phrase struct {
	Pattern *regexp.Regexp
	Use     string
}

// Phrases has the forms that a pattern finds without mistakes.
var Phrases = []Phrase{
	{regexp.MustCompile(`\b(?:is|are) (?:401|403|404|405|409|410|413|415|422|429|503)(?:[.,;:]| and\b| if\b| with\b|$)`), `"returns 422"`},
	{regexp.MustCompile(`(?:^|[.!?] )Of [^.]{0,80},`), "the subject first"},
	{regexp.MustCompile("\\b(?:another|other) [\\w`]+ than\\b"), `"differs from" or "except"`},
	{regexp.MustCompile(`\ba (?:minute|second|hour|day) of an?\b`), `"a minute per"`},
}

// PhrasesIn returns the phrases of a paragraph, each with the words to use.
func PhrasesIn(paragraph string) (found []string) {
	for _, phrase := range Phrases {
		if text := phrase.Pattern.FindString(paragraph); text != "" {
			found = append(found, text+": write "+phrase.Use)
		}
	}
	return found
}
