package metering

import (
	"fmt"
	"time"
)

// Bounds on the difference between a process's clock and the database's.
const (
	ClockWarning = 5 * time.Second // beyond it, the process is not ready
	ClockLimit   = time.Minute     // beyond it, the process decides nothing that depends on the time
)

// ClockOffset returns how far a process's clock is ahead of the database's; known is false
// before the first comparison. A nil ClockOffset is that of a process whose clock is right.
type ClockOffset func() (offset time.Duration, known bool)

// Correct returns the time of the database's clock when the process's clock says now.
func (o ClockOffset) Correct(now time.Time) time.Time {
	if o == nil {
		return now
	}
	offset, _ := o()
	return now.Add(-offset)
}

// Check returns an error if the clocks differ by more than a bound.
func (o ClockOffset) Check(bound time.Duration) error {
	if o == nil {
		return nil
	}
	offset, known := o()
	if !known {
		return Errorf(CodeUnavailable, "the server has not compared its clock with the database's clock yet; try again")
	}
	if offset.Abs() > bound {
		err := Errorf(CodeUnavailable, "the server's clock and the database's clock differ by more than %s; try again", bound)
		return err.Because(fmt.Errorf("this process's clock is %s ahead", offset.Round(time.Millisecond)))
	}
	return nil
}
