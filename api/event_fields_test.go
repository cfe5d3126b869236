package api

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestTrimmerShortensLongWhiteSpace(t *testing.T) {
	t.Parallel()
	blanks, most := strings.Repeat(" \r\n\t", 3*maxBlanks), strings.Repeat(" \r\n\t", maxBlanks/4)
	for text, want := range map[string]string{
		"":                          "",
		blanks:                      most,
		"{ }":                       "{ }",
		blanks + `{"a":1}` + blanks: most + `{"a":1}` + most,
		`["` + blanks + `"]`:        `["` + blanks + `"]`,
		`["\"` + blanks + `"]`:      `["\"` + blanks + `"]`,
		`["\\"` + blanks + `]`:      `["\\"` + most + `]`,
		`[1` + blanks + `2]`:        `[1` + most + `2]`,
	} {
		for _, from := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			got, err := io.ReadAll(&trimmer{from: from})
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			require.Equal(t, json.Valid([]byte(text)), json.Valid(got))
		}
	}
}

// TestDecoderScansWhiteSpaceOnlyOnce decodes nearly 8 MiB of white space, one byte per read. The decoder must not scan
// the white space again with each read.
func TestDecoderScansWhiteSpaceOnlyOnce(t *testing.T) {
	t.Parallel()
	text := `{"events":[` + strings.Repeat(" ", maxEventsBody-100) + `{"event_type":"call","customer_id":"acme"}]}`
	batch, err := newEventDecoder(iotest.OneByteReader(strings.NewReader(text))).batch()
	require.NoError(t, err)
	require.Len(t, batch.events, 1)
}
