package metering_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestShortLongOrGuessablePasswordIsRefused(t *testing.T) {
	t.Parallel()
	for password, rule := range map[string]string{
		"correct horse battery":     "",
		"ada-lovelace":              "",
		"zK3vQ9pLm2Xa":              "",
		"tooshort":                  "must have 12 to 256 characters",
		strings.Repeat("ä1zK", 100): "must have 12 to 256 characters",
		"123456789012":              "is easy to guess",
		"aaaaaaaaaaaaaaaaaaaaaa":    "is easy to guess",
		"qwertyuiop12":              "is easy to guess",
		"password1234":              "is easy to guess",
	} {
		err := metering.ValidPassword("body.password", password)
		if rule == "" {
			require.NoError(t, err, password)
			continue
		}
		var refused *metering.Error
		require.ErrorAs(t, err, &refused, password)
		require.Contains(t, refused.Fields[0].Message, rule, password)
		require.NotContains(t, refused.Error()+refused.Fields[0].Message, password)
	}
}
