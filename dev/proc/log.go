package proc

import (
	"log/slog"
	"sync"
	"testing"
)

// Logger returns a logger for a test. If the test fails, the last lines of the log are printed.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	log := new(tail)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last lines of the log:\n%s", log)
		}
	})
	return slog.New(slog.NewTextHandler(log, nil))
}

// tail keeps the last logTail bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write adds a line, and drops the oldest bytes.
func (l *tail) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	l.text = append([]byte(nil), l.text[max(0, len(l.text)-logTail):]...)
	return len(line), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
