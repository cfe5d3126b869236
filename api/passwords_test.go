package api

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAHashIsOfOnePasswordAndNeverTheSameTwice(t *testing.T) {
	t.Parallel()
	hash := HashPassword("correct horse")
	require.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, hash)
	require.NotEqual(t, hash, HashPassword("correct horse"))
	require.True(t, isPassword(hash, "correct horse"))
	require.False(t, isPassword(hash, "correct horsE"))
	for _, broken := range []string{
		"", "correct horse", hash[:len(hash)-1], strings.Replace(hash, "argon2id", "argon2i", 1), strings.Replace(hash, "v=19", "v=16", 1),
		strings.Replace(hash, "m=19456", "m=4000000", 1), strings.Replace(hash, "t=2", "t=0", 1), strings.Replace(hash, "p=1", "p=200", 1),
		strings.Replace(hash, "p=1", "p=257", 1), strings.Replace(hash, "t=2", "t=11", 1), hash[:strings.LastIndex(hash, "$")+1],
	} {
		require.False(t, isPassword(broken, "correct horse"), broken)
	}
}

func TestAStoredHashStaysThePasswords(t *testing.T) {
	t.Parallel()
	const stored = "$argon2id$v=19$m=19456,t=2,p=1$p3RUaO0GBA+hX4qDTCJ2jQ$IJURkALQS4rcft4Dsy6OiT0pJgDfFWxQu7+Nv7IsbPk"
	require.True(t, isPassword(stored, "correct horse"))
	require.False(t, isPassword(stored, "correct horsE"))
}

// TestEveryCheckHashesInItsTurn also says that one without a member behind it
// costs what any other does.
func TestEveryCheckHashesInItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		hash := HashPassword("correct horse")
		require.True(t, p.slots.Take("another", maxHashing))
		for _, of := range []*string{nil, &hash} {
			began := time.Now()
			_, err := p.match(t.Context(), "ada", of, "correct horse")
			require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))
			require.Equal(t, hashingWait, time.Since(began))
		}
		p.slots.Give("another", maxHashing)
		matches, err := p.match(t.Context(), "ada", &hash, "correct horse")
		require.NoError(t, err)
		require.True(t, matches)
		matches, err = p.match(t.Context(), "ada", nil, "correct horse")
		require.NoError(t, err)
		require.False(t, matches)
	})
}

// TestHashingIsByTurns has a tenant make many members, and somebody sign in.
func TestHashingIsByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPasswords()
		require.True(t, p.slots.Take("another", maxHashing))
		var order []string
		for _, who := range []string{"ten_1", "ten_1", "ten_1", "198.51.100.7"} {
			go func() {
				if p.inTurn(t.Context(), who, func() { order = append(order, who) }) != nil {
					t.Error(who)
				}
			}()
			synctest.Wait()
		}
		p.slots.Give("another", maxHashing)
		synctest.Wait()
		require.Equal(t, []string{"ten_1", "198.51.100.7", "ten_1", "ten_1"}, order)
	})
}
