package api

import "time"

// sparseLogEvery is the time between two entries of a SparseLog.
const sparseLogEvery = time.Minute

// SparseLog combines the log entries of each minute into one, for entries that a flood can cause. It is not
// safe for concurrent use.
type SparseLog struct {
	logged  time.Time
	pending int // entries since logged
}

// Add counts an entry. It returns the number of entries to log now as one. It returns 0 if the last log entry
// is less than a minute old.
func (l *SparseLog) Add(now time.Time) (entries int) {
	l.pending++
	if now.Sub(l.logged) < sparseLogEvery {
		return 0
	}
	entries = l.pending
	*l = SparseLog{logged: now}
	return entries
}
