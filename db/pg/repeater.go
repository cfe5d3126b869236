package pg

import "time"

// Repeater calls a function at an interval, and once more when it is closed.
type Repeater struct{ stop, stopped chan struct{} }

// StartRepeater starts a repeater. IsClosing returns true in the last call of do, so that do can skip new work.
func StartRepeater(every time.Duration, do func(*Repeater)) *Repeater {
	r := &Repeater{make(chan struct{}), make(chan struct{})}
	go r.run(every, do)
	return r
}

// Close stops the repeater and returns after the last call.
func (r *Repeater) Close() {
	close(r.stop)
	<-r.stopped
}

// IsClosing reports whether Close was called.
func (r *Repeater) IsClosing() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func (r *Repeater) run(every time.Duration, do func(*Repeater)) {
	defer close(r.stopped)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for stopping := false; !stopping; {
		select {
		case <-r.stop:
			stopping = true
		case <-ticker.C:
		}
		do(r)
	}
}
