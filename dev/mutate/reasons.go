package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// accepted contains the faults that no test notices. Each line has five fields, separated by tabs: the
// file, the function, the original code, the mutated code and the reason. The reason of a mutant that
// behaves like the original begins with "equivalent: ".
//
//go:embed accepted.txt
var accepted string

// reason is the reason why no test notices a fault.
type reason string

// equivalent reports whether the mutant behaves like the original.
func (r reason) equivalent() bool { return strings.HasPrefix(string(r), "equivalent: ") }

// readReasons returns the reasons by the keys of their mutants. It returns an error if a line matches no
// mutant.
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

// cutLast cuts a text at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
