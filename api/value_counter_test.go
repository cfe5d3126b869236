package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValueCounterCountsNamesAndValuesByteByByte(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		``: 0, ` `: 0, `1`: 1, `""`: 1, `[]`: 1, `{}`: 1,
		`[1,2, true ,null]`:        5,
		`{"a":1,"b":[2,{}]}`:       7,
		`{"a,b":"[{\",:","":"\\"}`: 5,
		`[{"":0},{"":0}]`:          7,
		`-1.5e3`:                   1,
		`["a""b"]`:                 3,
	} {
		counter := new(valueCounter)
		for i := range text {
			counter.add([]byte(text[i : i+1]))
		}
		require.Equal(t, want, counter.total(), text)
		require.Equal(t, want, new(valueCounter).add([]byte(text)), text)
	}
	var none *valueCounter
	require.Zero(t, none.add([]byte(`[1]`)))
}
