package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A spreadsheet may separate cells by another character than the comma.
func TestNoPartOfATextIsAFormula(t *testing.T) {
	t.Parallel()
	for text, cell := range map[string]string{
		"": "", "plain": "plain", "a=b": "a=b", "=cmd()": "'=cmd()", "＝cmd()": "'＝cmd()", "a;=cmd()": "a;'=cmd()", "a;;+1": "a;;'+1",
		"a\n@b": "a\n'@b", "a|-1": "a|'-1", "\t=1": "'\t'=1", `{"a":";＠b"}`: `{"a":";'＠b"}`,
	} {
		require.Equal(t, cell, textCell(text), text)
	}
}
