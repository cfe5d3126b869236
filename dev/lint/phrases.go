package lint

import "regexp"

// Phrase is a form of words that makes readers read a sentence twice, and its replacement.
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

// CommentPhrases are the forms that comments avoid in addition.
var CommentPhrases = []Phrase{
	{regexp.MustCompile(`\b(?:whoever|whose|somebody|nobody|anybody|everybody|[Ww]ho)\b`), "the name of the component, caller or role"},
	{regexp.MustCompile(`(?:^|[,;:(]\s|\b(?:of|by|for|in|than|with|from|to|and|but|is|are|at|on)\s)[Ww]hat\b`), "the name of the thing"},
	{regexp.MustCompile(`\bsays? (?:whether|what|who|why|how|which|where|when)\b`), `"reports whether" or "returns"`},
	{regexp.MustCompile(`\bhas (?:an?|the|it|them|this|that) \w+ (?:\w+ed|made|read|taken|sent|looked)\b`), "the verb itself"},
	{regexp.MustCompile(`\b(?:comes? to nothing|look(?:s|ed)? again|far side|the other side|taken in|on its way|in doubt|elsewhere|left out|leaves? out|told of|tells? (?:of|it|them)|but for|former|by itself)\b`), "the field's term"},
}

// PhrasesIn returns the phrases in a paragraph, each with its replacement.
func PhrasesIn(paragraph string) []string { return phrasesIn(paragraph, Phrases) }

// PhrasesInComment returns the phrases in a comment, each with its replacement.
func PhrasesInComment(comment string) []string {
	return append(phrasesIn(comment, Phrases), phrasesIn(comment, CommentPhrases)...)
}

func phrasesIn(paragraph string, phrases []Phrase) (found []string) {
	for _, phrase := range phrases {
		if text := phrase.Pattern.FindString(paragraph); text != "" {
			found = append(found, text+": write "+phrase.Use)
		}
	}
	return found
}
