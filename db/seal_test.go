package db_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/seal"
)

func testKey(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func keyring(t *testing.T, items ...string) seal.Keyring {
	t.Helper()
	ring, err := seal.ParseKeyring(strings.Join(items, ","))
	require.NoError(t, err)
	return ring
}

func TestASealedSecretOpensForItsTenantAndPurposeOnly(t *testing.T) {
	t.Parallel()
	ring := keyring(t, testKey("a", 1))
	sealed, err := ring.Seal(7, seal.ProviderSecret, []byte("whsec_x"))
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "whsec_x")

	opened, err := ring.Open(7, seal.ProviderSecret, sealed)
	require.NoError(t, err)
	require.Equal(t, "whsec_x", string(opened))

	_, err = ring.Open(8, seal.ProviderSecret, sealed)
	require.ErrorContains(t, err, "changed, or encrypted for another purpose")
	_, err = ring.Open(7, "another", sealed)
	require.ErrorContains(t, err, "changed, or encrypted for another purpose")
}

func TestAnAlteredSecretDoesNotOpen(t *testing.T) {
	t.Parallel()
	ring := keyring(t, testKey("a", 1))
	sealed, err := ring.Seal(7, seal.ProviderSecret, []byte("whsec_x"))
	require.NoError(t, err)
	for i := range sealed {
		altered := bytes.Clone(sealed)
		altered[i] ^= 1
		_, err := ring.Open(7, seal.ProviderSecret, altered)
		require.Error(t, err, "byte %d", i)
		_, err = ring.Open(7, seal.ProviderSecret, sealed[:i])
		require.Error(t, err, "cut at %d", i)
	}
}

func TestNewKeySealsAndPreviousKeyStillOpens(t *testing.T) {
	t.Parallel()
	old := keyring(t, testKey("2025", 1))
	sealed, err := old.Seal(7, seal.ProviderSecret, []byte("whsec_x"))
	require.NoError(t, err)

	both := keyring(t, testKey("2026", 2), testKey("2025", 1))
	opened, err := both.Open(7, seal.ProviderSecret, sealed)
	require.NoError(t, err)
	require.Equal(t, "whsec_x", string(opened))

	resealed, err := both.Seal(7, seal.ProviderSecret, opened)
	require.NoError(t, err)
	_, err = old.Open(7, seal.ProviderSecret, resealed)
	require.ErrorContains(t, err, "lacks the key")
}

func TestKeyringErrorsNeverEchoAKey(t *testing.T) {
	t.Parallel()
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 16))
	for _, text := range []string{"", secret, "a:" + secret, ":" + secret, testKey("a", 1) + "," + testKey("a", 2), "a:" + secret + ","} {
		_, err := seal.ParseKeyring(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), secret)
	}
}
