package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMutantsOfReturnsMutantsOfSource(t *testing.T) {
	t.Parallel()
	mutants, files, err := mutantsOf(t.Context(), "testdata/rules")
	require.NoError(t, err)
	var made []string
	for _, m := range mutants {
		if m.function == "left" || m.kind == ofRounding {
			made = append(made, m.kind+": "+m.was+" => "+m.becomes)
		}
	}
	require.Len(t, files, 3)
	require.Contains(t, files["testdata/rules/spans.go"], `import "time"`)
	for name, source := range files {
		_, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"Add, Sub: until.Add(-grace) => until.Add(-(-grace))",
		"Add, Sub: a.Sub(b) => a.Add(b)",
		"Add, Sub: a.Add(b) => a.Sub(b)",
		"Before, After: at.Before(until.Add(-grace)) => at.After(until.Add(-grace))",
		"arithmetic: -grace => grace",
		"boundary: until.Sub(at) >= grace => until.Sub(at) > grace",
		"boundary: i < 3 => i <= 3",
		"boundary of instants: at.Before(until.Add(-grace)) => !at.After(until.Add(-grace))",
		"increment: i++ => i--",
		"logic: at.Before(until.Add(-grace)) && !at.IsZero() || until.Sub(at) >= grace => at.Before(until.Add(-grace)) && !at.IsZero() && until.Sub(at) >= grace",
		"logic: at.Before(until.Add(-grace)) && !at.IsZero() => at.Before(until.Add(-grace)) || !at.IsZero()",
		"negation: until.Sub(at) >= grace => until.Sub(at) < grace",
		"negation: i < 3 => i >= 3",
		"rounding: a.Round(unit) => a",
		"rounding: Units(a.Sub(b), 3) => a.Sub(b)",
	}, made)
}

// TestTallyFailsIfTooFewFaultsAreNoticed checks that print returns an error if too few faults of a kind were noticed.
// Mutants accepted as equivalent do not count as tried.
func TestTallyFailsIfTooFewFaultsAreNoticed(t *testing.T) {
	t.Parallel()
	table := newTally()
	for range 9 {
		table.add(mutant{kind: ofLogic}, true, "")
	}
	table.add(mutant{kind: ofLogic}, false, "equivalent: it is the same")
	table.add(mutant{kind: ofLogic}, false, "only another text is printed")
	require.NoError(t, table.print())
	require.Equal(t, count{tried: 10, noticed: 9, accepted: 2}, table.counts[ofLogic])

	table.add(mutant{kind: ofSign}, false, "only another text is printed")
	require.EqualError(t, table.print(), "of these kinds fewer than 90 % were noticed: "+ofSign)
}

func TestTallyFailsIfSurvivorsAndAcceptedReasonsDiffer(t *testing.T) {
	t.Parallel()
	for want, why := range map[string]reason{"1 survived that are not accepted": "", "1 are noticed that are accepted": "equivalent: it is the same"} {
		table := newTally()
		for range 99 {
			table.add(mutant{kind: ofLogic}, true, "")
		}
		table.add(mutant{kind: ofLogic}, why != "", why)
		require.EqualError(t, table.print(), want)
	}
}

func TestEveryAcceptedMutantStillExists(t *testing.T) {
	t.Parallel()
	mutants, _, err := mutantsOf(t.Context(), "../../billing")
	require.NoError(t, err)
	_, err = readReasons(mutants)
	require.NoError(t, err)
}
