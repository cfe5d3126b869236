package main

import (
	"context"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/db"
)

// restored starts a new epoch of the ledger after a restore, because the database lacks the reports that were
// sent after the backup.
func restored(ctx context.Context, env *environment, out io.Writer) error {
	url := env.databaseURL()
	if err := env.err(); err != nil {
		return err
	}
	store, err := db.Open(ctx, url, nil, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	now, err := store.ReadClock(ctx)
	if err != nil {
		return err
	}
	r, err := store.Restores.Raise(ctx, now)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Ledger epoch                %d\nReports in doubt            %d\nPeriods to report again     %d\n", r.Epoch, r.InDoubt, r.Periods)
	return err
}
