package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

func TestPasswordHashDependsOnEMailPasswordAndSecret(t *testing.T) {
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

func TestStoredPasswordHashRemainsValid(t *testing.T) {
	t.Parallel()
	p, err := NewPasswords(make([]byte, 32))
	require.NoError(t, err)
	const stored = "4292b05d2bd581d22fb8534697ec72a431d2d32380e457eb3b443f7dd8452215"
	require.Equal(t, stored, hex.EncodeToString(p.Hash("ada@example.com", "correct horse")))
}

// newTestHashing returns a hashing with a secret of zeros.
func newTestHashing(t *testing.T) *hashing {
	t.Helper()
	passwords, err := NewPasswords(make([]byte, 32))
	require.NoError(t, err)
	h, err := newHashing(passwords)
	require.NoError(t, err)
	return h
}

func TestPasswordCheckWaitsForHashingPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestHashing(t)
		require.True(t, p.places.Take("another", hashingPlaces))
		began := time.Now()
		_, err := p.hash(t.Context(), "198.51.100.7", "ada@example.com", "correct horse")
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))
		require.Equal(t, hashingWait, time.Since(began))
		p.places.Give("another", hashingPlaces)
		hash, err := p.hash(t.Context(), "198.51.100.7", "ada@example.com", "correct horse")
		require.NoError(t, err)
		require.Equal(t, p.Hash("ada@example.com", "correct horse"), hash)
	})
}

// TestHashingAlternatesBetweenAddresses sends three guesses from one address and then a sign-in from another, while
// only one place is free. The sign-in is hashed second.
func TestHashingAlternatesBetweenAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestHashing(t)
		require.True(t, p.places.Take("another", hashingPlaces))
		var order []string
		var hashings sync.WaitGroup
		for _, who := range []string{"198.51.100.9", "198.51.100.9", "198.51.100.9", "198.51.100.7"} {
			hashings.Go(func() {
				if p.inTurn(t.Context(), who, func() { order = append(order, who) }) != nil {
					t.Error(who)
				}
			})
			synctest.Wait()
		}
		p.places.Give("another", 1)
		hashings.Wait()
		require.Equal(t, []string{"198.51.100.9", "198.51.100.7", "198.51.100.9", "198.51.100.9"}, order)
	})
}

// hashes requests a hash of 40 ms for each address at once. It returns the time from began to the start of each
// hash.
func (h *hashing) hashes(t *testing.T, began time.Time, addresses ...string) (begun []time.Duration) {
	var hashings sync.WaitGroup
	for _, who := range addresses {
		hashings.Go(func() {
			work := func() {
				begun = append(begun, time.Since(began))
				time.Sleep(40 * time.Millisecond)
			}
			if err := h.inTurn(t.Context(), who, work); err != nil {
				t.Error(err)
			}
		})
	}
	hashings.Wait()
	return begun
}

const ms = time.Millisecond

// TestHashingPausesForTwiceTheTimeOfAHash sends six guesses from one address. From the third hash on, a hash of 40 ms
// starts every 120 ms.
func TestHashingPausesForTwiceTheTimeOfAHash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := newTestHashing(t).hashes(t, time.Now(), slices.Repeat([]string{"198.51.100.9"}, 6)...)
		require.Equal(t, []time.Duration{0, 40 * ms, 120 * ms, 240 * ms, 360 * ms, 480 * ms}, begun)
	})
}

// TestAddressWithoutGuessesSkipsHashingPause signs in from one address while another address sends guesses. The sign-in
// may wait for the hash that is being computed, but not for a pause.
func TestAddressWithoutGuessesSkipsHashingPause(t *testing.T) {
	t.Parallel()
	for at, begins := range map[time.Duration]time.Duration{
		50 * ms:  80 * ms, // after the hash that is being computed
		250 * ms: 280 * ms,
		300 * ms: 300 * ms, // between two hashes
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newTestHashing(t)
			began := time.Now()
			var guesses sync.WaitGroup
			guesses.Go(func() { p.hashes(t, began, slices.Repeat([]string{"198.51.100.9"}, 20)...) })
			time.Sleep(at)
			require.Equal(t, []time.Duration{begins}, p.hashes(t, began, "198.51.100.7"), at)
			guesses.Wait()
		})
	}
}

// TestPasswordGuessesFromManyAddressesUseAtMostOneThirdOfProcessor sends guesses from thirty addresses. After the first
// hashingPlaces hashes, at most one hash of 40 ms starts every 120 ms.
func TestPasswordGuessesFromManyAddressesUseAtMostOneThirdOfProcessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var addresses []string
		for n := range 30 {
			addresses = append(addresses, fmt.Sprintf("198.51.100.%d", n))
		}
		begun := newTestHashing(t).hashes(t, time.Now(), addresses...)
		require.Len(t, begun, len(addresses))
		for n, at := range begun {
			require.LessOrEqual(t, time.Duration(n-hashingPlaces)*120*ms, at, "hash %d", n)
		}
	})
}

// TestAddressesWithoutGuessesAreHashedFirst sends guesses from 200 addresses without a pause. An account that
// has signed in from its address before, and two addresses without guesses, get a hash within 200 ms.
func TestAddressesWithoutGuessesAreHashedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestHashing(t)
		h.count("203.0.113.1", 1)
		h.succeeded("203.0.113.1", "ada at 203.0.113.1")
		ctx, stop := context.WithCancel(t.Context())
		var guesses sync.WaitGroup
		for n := range 200 {
			address := fmt.Sprintf("198.51.100.%d", n)
			h.count(address, n%3+1)
			guesses.Go(func() {
				for ctx.Err() == nil {
					h.count(address, 1)
					_ = h.inTurn(ctx, address, func() { time.Sleep(40 * ms) })
				}
			})
		}
		time.Sleep(3 * time.Second)
		for _, who := range []string{"ada at 203.0.113.1", "203.0.113.2", "203.0.113.3"} {
			began := time.Now()
			require.NoError(t, h.inTurn(t.Context(), who, func() { time.Sleep(40 * ms) }))
			require.LessOrEqual(t, time.Since(began), 200*ms, who)
		}
		stop()
		guesses.Wait()
	})
}

// TestSignInAttemptWithoutHashDoesNotCount retries a sign-in that got no hash, because all places were occupied. Only
// the second attempt counts.
func TestSignInAttemptWithoutHashDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestHashing(t)
		require.True(t, h.places.Take("another", hashingPlaces))
		const address = "198.51.100.7"
		_, err := h.hashAt(t.Context(), address, "ada at home", "ada@example.com", "correct horse")
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))
		require.Zero(t, h.rank(address))
		h.places.Give("another", hashingPlaces)
		_, err = h.hashAt(t.Context(), address, "ada at home", "ada@example.com", "a guess")
		require.NoError(t, err)
		require.Equal(t, 1, h.rank(address))
	})
}

func TestAccountThatSignedInAtAddressHasPriorityThere(t *testing.T) {
	t.Parallel()
	h := newTestHashing(t)
	const address, account = "198.51.100.9", "ada at 198.51.100.9"
	for range 3 {
		_, err := h.hashAt(t.Context(), address, account, "ada@example.com", "a guess")
		require.NoError(t, err)
	}
	require.Equal(t, 3, h.rank(address))
	_, err := h.hashAt(t.Context(), address, account, "ada@example.com", "correct horse")
	require.NoError(t, err)
	h.succeeded(address, account)
	require.Equal(t, 3, h.rank(address))
	require.Negative(t, h.rank(account))
}
