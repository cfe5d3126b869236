package db_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/dev/histories"
)

func TestKeyHoldsNoMoreUnitsThanWereFreeBeforeTake(t *testing.T) {
	t.Parallel()
	s := fair.NewShares[string](16)
	require.True(t, s.Take("a", 8))
	require.False(t, s.Take("a", 1))
	require.False(t, s.Take("b", 9))
	require.True(t, s.Take("b", 4))
	require.False(t, s.Take("b", 1))
	require.True(t, s.Fits("c", 4))
	require.False(t, s.Fits("c", 5))
	require.True(t, s.Take("c", 2))
	s.Give("a", 8)
	require.True(t, s.Take("b", 2))
	require.True(t, fair.NewShares[string](1).Take("a", 1), "a single unit can be taken")
}

func TestKeysOfALowerRankComeFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewRankedShares(2, func(key string) int { return len(key) })
		require.True(t, s.Take("another", 2))
		var order []string
		var waiting sync.WaitGroup
		for _, key := range []string{"ccc", "bb", "dd", "ccc", "a"} {
			waiting.Go(func() {
				if s.Wait(t.Context(), key) == nil {
					order = append(order, key)
					s.Give(key, 1)
				}
			})
			synctest.Wait()
		}
		s.Give("another", 1)
		waiting.Wait()
		require.Equal(t, []string{"a", "bb", "dd", "ccc", "ccc"}, order)
	})
}

// TestAHolderLetsOtherKeysGoFirst makes the holder of the only unit yield twice. A caller of another key gets the unit
// between the holder's two turns. The holder precedes other callers of its own key.
func TestAHolderLetsOtherKeysGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewShares[string](1)
		var order []string
		require.True(t, s.Take("a", 1))
		require.NoError(t, s.Yield(t.Context(), "a"), "no other caller waits")
		var waiting sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			waiting.Go(func() {
				if s.Wait(t.Context(), key) == nil {
					order = append(order, key)
					s.Give(key, 1)
				}
			})
			synctest.Wait()
		}
		for range 2 {
			require.NoError(t, s.Yield(t.Context(), "a"))
			order = append(order, "holder")
		}
		s.Give("a", 1)
		waiting.Wait()
		require.Equal(t, []string{"holder", "b", "holder", "a"}, order)
	})
}

// TestCanceledYieldReleasesTheUnit cancels a holder while it yields, and checks that it holds no unit.
func TestCanceledYieldReleasesTheUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewShares[string](1)
		require.True(t, s.Take("a", 1))
		go func() { _ = s.Wait(t.Context(), "b") }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		lost := make(chan error)
		go func() { lost <- s.Yield(ctx, "a") }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-lost, context.Canceled)
		s.Give("b", 1)
		require.True(t, s.Take("anybody", 1))
	})
}

// TestPropertySharesAddUp takes and gives random numbers of units. It checks that no unit is lost, and that a key never
// holds more than was free when it took units.
func TestPropertySharesAddUp(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(t *rapid.T) {
		all := rapid.Int64Range(1, 50).Draw(t, "all")
		s, held, free := fair.NewShares[int](all), map[int]int64{}, all
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, n := rapid.IntRange(1, 4).Draw(t, "key"), rapid.Int64Range(1, 20).Draw(t, "n")
			if rapid.Bool().Draw(t, "give") {
				n = min(n, held[key])
				s.Give(key, n)
				held[key], free = held[key]-n, free+n
				continue
			}
			if want := held[key]+n <= free; s.Take(key, n) != want {
				t.Fatalf("take %d of %d free beside %d: not %t", n, free, held[key], want)
			} else if want {
				held[key], free = held[key]+n, free-n
			}
		}
		for key, n := range held {
			s.Give(key, n)
		}
		if !s.Take(9, all) {
			t.Fatal("the returned units are not available")
		}
	})
}

func TestUnitIsGivenToWaitingKeysInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewShares[string](1)
		require.NoError(t, s.Wait(t.Context(), "a"))
		var mu sync.Mutex
		order := ""
		wait := func(key string) {
			go func() {
				if s.Wait(t.Context(), key) == nil {
					mu.Lock()
					order += key
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		for _, key := range []string{"a", "a", "a", "b", "b", "c"} {
			wait(key)
		}
		s.Give("a", 1)
		for range 6 {
			synctest.Wait()
			mu.Lock()
			last := order[len(order)-1:]
			mu.Unlock()
			s.Give(last, 1)
		}
		require.Equal(t, "abcaba", order)
	})
}

func TestCanceledWaitDoesNotBlockOtherCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewShares[string](1)
		require.NoError(t, s.Wait(t.Context(), "a"))
		ctx, cancel := context.WithCancel(t.Context())
		var gone, stays error
		go func() { gone = s.Wait(ctx, "b") }()
		synctest.Wait()
		done := make(chan struct{})
		go func() { defer close(done); stays = s.Wait(t.Context(), "b") }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.ErrorIs(t, gone, context.Canceled)
		s.Give("a", 1)
		<-done
		require.NoError(t, stays)
		s.Give("b", 1)
		require.True(t, s.Take("c", 1))
	})
}
