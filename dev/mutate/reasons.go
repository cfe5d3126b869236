package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// accepted are the faults that no test notices, and why: for each a line with
// the file, the function, what was there, what is there instead and the reason,
// between tabs. One that is equivalent behaves like what was there.
//
//go:embed accepted.txt
var accepted string

// reason is why no test notices a fault.
type reason string

func (r reason) equivalent() bool { return strings.HasPrefix(string(r), "equivalent: ") }

// readReasons returns the reasons by the key of their mutants. Each has to be
// one of the mutants'.
func readReasons(of []mutant) (map[string]reason, error) {
	reasons := make(map[string]reason)
	for line := range strings.Lines(accepted) {
		key, why, _ := cutLast(strings.TrimSuffix(line, "\n"), "\t")
		if !slices.ContainsFunc(of, func(m mutant) bool { return m.key() == key }) {
			return nil, fmt.Errorf("there is no such fault any more: %s", key)
		}
		reasons[key] = reason(why)
	}
	return reasons, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
