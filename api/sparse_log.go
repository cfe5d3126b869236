package api

import (
	"sync"
	"time"
)

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

// sparseLogs has a SparseLog for each key. It is safe for concurrent use.
type sparseLogs[K comparable] struct {
	mu   sync.Mutex
	logs map[K]*SparseLog
}

// add is SparseLog.Add for a key.
func (l *sparseLogs[K]) add(key K, now time.Time) (entries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs[key] == nil {
		if l.logs == nil {
			l.logs = make(map[K]*SparseLog)
		}
		l.logs[key] = new(SparseLog)
	}
	return l.logs[key].Add(now)
}
