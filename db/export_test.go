package db

import "github.com/odometer-metering/odometer/metering"

// Queued is how many requests of the tenant wait for a transaction.
func (w *Writer) Queued(tenant metering.TenantID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.lanes[tenant]; ok {
		return len(l.queue)
	}
	return 0
}
