package pg

import (
	"context"
	"time"
)

// Wait returns after a pause, or with ctx's error if ctx ends first.
func Wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}
