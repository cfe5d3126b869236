package main

import (
	"context"
	"fmt"
	"io"

	"github.com/odometer-metering/odometer/db"
)

// restored begins another epoch of the ledger, because the database does not
// know what was reported after its backup was made.
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
	_, err = fmt.Fprintf(out, "Ledger epoch                %d\nReports withdrawn           %d\nReports in doubt            %d\nPeriods to report again     %d\n",
		r.Epoch, r.Withdrawn, r.InDoubt, r.Periods)
	return err
}
