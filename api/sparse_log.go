package api

import "time"

// sparseLogEvery is the time between two entries of a SparseLog.
const sparseLogEvery = time.Minute

// SparseLog logs one of the many entries that a flood would make in a minute. Its owner
// guards it against concurrent use.
type SparseLog struct {
	logged  time.Time
	pending int // entries since then
}

// Add counts an entry at an instant, and returns how many entries to log now as one: all
// since the last one was logged, or 0 if that was less than a minute ago.
func (l *SparseLog) Add(now time.Time) (entries int) {
	l.pending++
	if now.Sub(l.logged) < sparseLogEvery {
		return 0
	}
	entries = l.pending
	*l = SparseLog{logged: now}
	return entries
}
