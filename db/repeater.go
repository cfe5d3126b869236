package db

import "time"

// repeater calls a function at an interval, and once more when it is closed.
type repeater struct{ stop, stopped chan struct{} }

// startRepeater starts a repeater. isClosing returns true in the last call of do, so that do can skip new work.
func startRepeater(every time.Duration, do func(*repeater)) *repeater {
	r := &repeater{make(chan struct{}), make(chan struct{})}
	go r.run(every, do)
	return r
}

// close stops the repeater and returns after the last call.
func (r *repeater) close() {
	close(r.stop)
	<-r.stopped
}

func (r *repeater) isClosing() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func (r *repeater) run(every time.Duration, do func(*repeater)) {
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
