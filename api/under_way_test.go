package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestHeavyRequestFailsIfAllPlacesAreOccupied checks the limits of heavy requests. While other tenants use up a limit,
// a further request fails after heavyWait. The failed request then occupies no place.
func TestHeavyRequestFailsIfAllPlacesAreOccupied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newHeavyTurns(2)
		require.True(t, turns.begun.Take(2, maxHeavy/2))
		require.True(t, turns.begun.Take(3, maxHeavy/4))
		require.True(t, turns.begun.Take(4, maxHeavy/4))
		began := time.Now()
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(new(exchange).beginHeavy(t.Context(), turns, 1)))
		require.Equal(t, heavyWait, time.Since(began))

		turns.begun.Give(2, 1)
		require.True(t, turns.reading.Take(2, maxReading/2))
		require.True(t, turns.reading.Take(3, maxReading/2))
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(new(exchange).beginHeavy(t.Context(), turns, 1)))
		require.True(t, turns.begun.Take(1, 1), "who waits in vain for its turn has not begun")
	})
}

// TestLongReadsUseAtMostHalfOfProcessors checks that two tenants read their batches after the first one after the other
// on two processors, and at the same time on four.
func TestLongReadsUseAtMostHalfOfProcessors(t *testing.T) {
	t.Parallel()
	for processors, together := range map[int]bool{1: false, 2: false, 3: false, 4: true} {
		synctest.Test(t, func(t *testing.T) {
			turns, ours, theirs := newHeavyTurns(processors), new(exchange), new(exchange)
			require.NoError(t, ours.beginHeavy(t.Context(), turns, 1))
			require.NoError(t, theirs.beginHeavy(t.Context(), turns, 2), "the first batch")
			require.NoError(t, ours.yieldTurn(t.Context()))
			var began []*exchange
			begin := func(x *exchange) {
				go func() {
					if x.yieldTurn(t.Context()) == nil {
						began = append(began, x)
					}
				}()
				synctest.Wait()
			}
			begin(theirs)
			if !together {
				require.Empty(t, began, "%d processors", processors)
				begin(ours)
			}
			require.Equal(t, []*exchange{theirs}, began, "%d processors", processors)
			theirs.answerMade()
			synctest.Wait()
			for _, x := range []*exchange{ours, theirs} {
				for _, end := range x.ends {
					end()
				}
			}
			require.True(t, turns.begun.Take(1, maxHeavy))
			require.True(t, turns.reading.Take(1, maxReading))
			require.True(t, turns.long.Take(1, int64(max(1, processors/2))))
		})
	}
}

// TestLongTimeSeriesLeaveHalfOfTheProcessors checks that two tenants read long time series one after the other on two
// processors, and at the same time on four. Batches of heavy requests count as well. A short time series waits for
// neither.
func TestLongTimeSeriesLeaveHalfOfTheProcessors(t *testing.T) {
	t.Parallel()
	for processors, together := range map[int]bool{1: false, 2: false, 3: false, 4: true} {
		for _, batch := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				turns, ours, theirs, short := newHeavyTurns(processors), new(exchange), new(exchange), new(exchange)
				if batch {
					require.NoError(t, ours.beginHeavy(t.Context(), turns, 1))
					require.NoError(t, ours.yieldTurn(t.Context()))
				} else {
					require.NoError(t, ours.beginSeries(t.Context(), turns, 1, true))
				}
				began := false
				go func() { began = theirs.beginSeries(t.Context(), turns, 2, true) == nil }()
				synctest.Wait()
				require.Equal(t, together, began, "%d processors", processors)
				require.NoError(t, short.beginSeries(t.Context(), turns, 2, false))
				ours.answerMade()
				synctest.Wait()
				require.True(t, began)
				for _, x := range []*exchange{ours, theirs, short} {
					for _, end := range x.ends {
						end()
					}
				}
				require.True(t, turns.series.Take(1, int64(max(2, processors))))
				require.True(t, turns.long.Take(1, int64(max(1, processors/2))))
			})
		}
	}
}

// takenBy calls take before it writes a part of a response.
type takenBy struct {
	http.ResponseWriter

	take func()
}

// Write calls take and writes the part.
func (w takenBy) Write(b []byte) (int, error) {
	w.take()
	return w.ResponseWriter.Write(b)
}

// TestHeavyTurnEndsBeforeResponseIsWritten checks that a heavy request ends its turn before it writes the
// response to the client, which may be slow.
func TestHeavyTurnEndsBeforeResponseIsWritten(t *testing.T) {
	t.Parallel()
	turns, x := newHeavyTurns(2), new(exchange)
	require.NoError(t, x.beginHeavy(t.Context(), turns, 1))
	taken := false
	client := takenBy{httptest.NewRecorder(), func() {
		taken = true
		require.True(t, turns.begun.Take(2, maxHeavy))
		require.True(t, turns.reading.Take(2, maxReading))
	}}
	answer := &recorder{ResponseWriter: client, connection: http.NewResponseController(client), made: x.answerMade}
	_, err := answer.Write([]byte(`{}`))
	require.NoError(t, err)
	require.True(t, taken)
	for _, end := range x.ends {
		end()
	}
	require.False(t, turns.begun.Take(3, 1), "the turn ends once")
}

// TestLargeRefusalCountsTowardsResponseMemory checks that a large refusal counts in the tenant's share of the memory
// for responses, also if the request is a write. Only the response to a write that has taken effect is always sent.
func TestLargeRefusalCountsTowardsResponseMemory(t *testing.T) {
	t.Parallel()
	full := func(int64) bool { return false }
	answers := func(reads bool, status, bytes int) bool {
		return (&exchange{reads: reads, hold: full, writer: &recorder{status: status}}).admits(bytes)
	}
	require.True(t, answers(false, http.StatusCreated, smallAnswer+1))
	require.False(t, answers(true, http.StatusOK, smallAnswer+1))
	for _, reads := range []bool{false, true} {
		require.False(t, answers(reads, http.StatusUnprocessableEntity, smallAnswer+1))
		require.True(t, answers(reads, http.StatusUnprocessableEntity, smallAnswer))
	}
}
