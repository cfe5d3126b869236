package api

import (
	"encoding/hex"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestAHashIsOfOneEMailAndOnePassword(t *testing.T) {
	t.Parallel()
	p, err := NewPasswords(make([]byte, 32))
	require.NoError(t, err)
	others, err := NewPasswords([]byte("another installation's secret 32"))
	require.NoError(t, err)
	hash := p.Hash("ada@example.com", "correct horse")
	require.Equal(t, hash, p.Hash("Ada@Example.COM", "correct horse"))
	for _, other := range [][]byte{
		p.Hash("ada@example.com", "correct horsE"), p.Hash("bob@example.com", "correct horse"), p.Hash("\u212Aarl@example.com", ""),
		p.Hash("karl@example.com", ""), others.Hash("ada@example.com", "correct horse"),
	} {
		require.Len(t, other, 32)
		require.NotEqual(t, hash, other)
	}
	require.NotEqual(t, p.Hash("karl@example.com", "x"), p.Hash("\u212Aarl@example.com", "x"), "the Kelvin sign is no k")
}

func TestAStoredHashStaysThePasswords(t *testing.T) {
	t.Parallel()
	p, err := NewPasswords(make([]byte, 32))
	require.NoError(t, err)
	const stored = "4292b05d2bd581d22fb8534697ec72a431d2d32380e457eb3b443f7dd8452215"
	require.Equal(t, stored, hex.EncodeToString(p.Hash("ada@example.com", "correct horse")))
}

func newTestHashing(t *testing.T) *hashing {
	t.Helper()
	passwords, err := NewPasswords(make([]byte, 32))
	require.NoError(t, err)
	return newHashing(passwords)
}

func TestEveryCheckHashesInItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestHashing(t)
		require.True(t, p.slots.Take("another", maxHashing))
		began := time.Now()
		_, err := p.hash(t.Context(), "198.51.100.7", "ada@example.com", "correct horse")
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))
		require.Equal(t, hashingWait, time.Since(began))
		p.slots.Give("another", maxHashing)
		hash, err := p.hash(t.Context(), "198.51.100.7", "ada@example.com", "correct horse")
		require.NoError(t, err)
		require.Equal(t, p.Hash("ada@example.com", "correct horse"), hash)
	})
}

// TestHashingIsByTurns has one address guess, and somebody sign in at another.
func TestHashingIsByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestHashing(t)
		require.True(t, p.slots.Take("another", maxHashing))
		var order []string
		for _, who := range []string{"198.51.100.9", "198.51.100.9", "198.51.100.9", "198.51.100.7"} {
			go func() {
				if p.inTurn(t.Context(), who, func() { order = append(order, who) }) != nil {
					t.Error(who)
				}
			}()
			synctest.Wait()
		}
		p.slots.Give("another", maxHashing)
		synctest.Wait()
		require.Equal(t, []string{"198.51.100.9", "198.51.100.7", "198.51.100.9", "198.51.100.9"}, order)
	})
}

// TestHashingRestsAsLongAsItTook has three hash at once, 40 ms each.
func TestHashingRestsAsLongAsItTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestHashing(t)
		began := time.Now()
		var begun []time.Duration
		var hashings sync.WaitGroup
		for range 3 {
			hashings.Go(func() {
				work := func() {
					begun = append(begun, time.Since(began))
					time.Sleep(40 * time.Millisecond)
				}
				if err := p.inTurn(t.Context(), "198.51.100.7", work); err != nil {
					t.Error(err)
				}
			})
		}
		hashings.Wait()
		require.Equal(t, []time.Duration{0, 80 * time.Millisecond, 160 * time.Millisecond}, begun)
	})
}
