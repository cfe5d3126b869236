package api

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
)

// TestNoPartOfCSVCellIsFormula checks that no part of a cell is a formula, because a spreadsheet can separate cells
// by a character that is not the comma.
func TestNoPartOfCSVCellIsFormula(t *testing.T) {
	t.Parallel()
	for text, cell := range map[string]string{
		"": "", "plain": "plain", "a=b": "a=b", "=cmd()": "'=cmd()", "＝cmd()": "'＝cmd()", "a;=cmd()": "a;'=cmd()", "a;;+1": "a;;'+1",
		"a\n@b": "a\n'@b", "a|-1": "a|'-1", "\t=1": "'\t'=1", "'": "''", "'=k": "''=k", "a;'=b": "a;''=b", "it's": "it's", `{"a":";＠b"}`: `{"a":";'＠b"}`,
	} {
		require.Equal(t, cell, textCell(text), text)
	}
}

// guard matches a quote that a reader of an export removes, as docs/api/usage.md describes. $1 is the separator before
// the quote, or empty at the beginning of the cell.
var guard = regexp.MustCompile(`(^|[;|\t\r\n])'`)

func TestPropertyFormulaGuardsCanBeRemovedFromCell(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("'=+-@＝＋－＠;|\t\r\na\""))).Draw(rt, "text")
		cell := textCell(text)
		require.Equal(rt, text, guard.ReplaceAllString(cell, "$1"))
		require.NotRegexp(rt, `(^|[;|\t\r\n])[=+\-@＝＋－＠]`, cell)
	})
}
