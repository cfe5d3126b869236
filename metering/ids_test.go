package metering_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func TestIdentifiers(t *testing.T) {
	t.Run("WhatIsWrittenIsReadBack", rapid.MakeCheck(func(t *rapid.T) {
		n := rapid.Int64Range(1, math.MaxInt64).Draw(t, "n")
		customer, ok := metering.ParseCustomerID(metering.CustomerID(n).String())
		require.True(t, ok)
		require.EqualValues(t, n, customer)
		tenant, ok := metering.ParseTenantID(metering.TenantID(n).String())
		require.True(t, ok)
		require.EqualValues(t, n, tenant)
	}))

	t.Run("AnIdentifierHasOneFormAndOneKind", func(t *testing.T) {
		for _, text := range []string{
			"", "cus_", "42", "ten_42", "CUS_42", "cus_0", "cus_-1", "cus_+1", "cus_042", "cus_42 ", " cus_42", "cus_4_2", "cus_0x2a", "cus_1e3",
			"cus_9223372036854775808", "cus_٤٢",
		} {
			_, ok := metering.ParseCustomerID(text)
			require.False(t, ok, "%q", text)
		}
	})
}
