package metering_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func TestIdentifiers(t *testing.T) {
	t.Run("WhatIsWrittenIsReadBack", rapid.MakeCheck(func(t *rapid.T) {
		n := rapid.Int64Range(1, math.MaxInt64).Draw(t, "n")
		member, ok := metering.ParseMemberID(metering.MemberID(n).String())
		require.True(t, ok)
		require.EqualValues(t, n, member)
		period, ok := metering.ParsePeriodID(metering.PeriodID(n).String())
		require.True(t, ok)
		require.EqualValues(t, n, period)
		tenant, ok := metering.ParseTenantID(metering.TenantID(n).String())
		require.True(t, ok)
		require.EqualValues(t, n, tenant)
		for _, kind := range metering.CredentialKind("").Values() {
			id := metering.CredentialID{Kind: kind, Number: n}
			credential, ok := metering.ParseCredentialID(id.String())
			require.True(t, ok)
			require.Equal(t, id, credential)
		}
	}))

	t.Run("AnIdentifierHasOneFormAndOneKind", func(t *testing.T) {
		for _, text := range []string{
			"", "ten_", "42", "cus_42", "TEN_42", "ten_0", "ten_-1", "ten_+1", "ten_042", "ten_42 ", " ten_42", "ten_4_2", "ten_0x2a", "ten_1e3",
			"ten_9223372036854775808", "ten_٤٢",
		} {
			_, ok := metering.ParseTenantID(text)
			require.False(t, ok, "%q", text)
			for _, prefix := range []string{"key_", "sec_"} {
				_, ok = metering.ParseCredentialID(strings.Replace(text, "ten_", prefix, 1))
				require.False(t, ok, "%q", text)
			}
		}
	})
}
