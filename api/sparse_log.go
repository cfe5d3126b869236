package api

import "time"

// sparseLogEvery is the time between two entries of a SparseLog.
const sparseLogEvery = time.Minute

// SparseLog combines the log entries of each minute into one, for entries that a flood can cause. It is not
// safe for concurrent use.
type SparseLog struct {
	logged  time.Time
	pending int // entries since then
}

// Add counts an entry and returns the number of entries to log now as one. It returns 0 if entries were
// logged less than a minute ago.
func (l *SparseLog) Add(now time.Time) (entries int) {
	l.pending++
	if now.Sub(l.logged) < sparseLogEvery {
		return 0
	}
	entries = l.pending
	*l = SparseLog{logged: now}
	return entries
}
