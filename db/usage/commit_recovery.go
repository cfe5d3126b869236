package usage

import (
	"context"
	"errors"
	"time"

	"github.com/odometer-metering/odometer/db/pg"
)

// backend identifies the PostgreSQL process that runs the attempt.
type backend struct {
	pid uint32
	at  time.Time // the server's time during the attempt; a later process with the same pid starts after this time
}

// recoverCommit reports whether an attempt was committed. Call it if COMMIT was not answered. It terminates the
// attempt's backend, and then checks whether the attempt's witness event is stored. It does not use the
// transaction ID, because a crashed server reuses IDs.
func (a *attempt) recoverCommit(ctx context.Context) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.writer.options.Deadline)
	defer cancel()
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		committed, err = a.readOutcome(ctx)
		if err == nil {
			return committed, nil
		}
		if waited := pg.Wait(ctx, pause); waited != nil {
			return false, errors.Join(err, waited)
		}
	}
}

var errBackendLives = errors.New("the backend that was to commit is still there")

func (a *attempt) readOutcome(ctx context.Context) (committed bool, err error) {
	var lives bool
	err = a.writer.store.pool.QueryRow(ctx, `
		select coalesce(bool_or(pg_terminate_backend(pid)), false)
		from pg_stat_activity where pid = $1 and backend_start <= $2`, a.backend.pid, a.backend.at).Scan(&lives)
	if err != nil {
		return false, err
	}
	if lives {
		return false, errBackendLives
	}
	e := a.witness
	err = a.writer.store.pool.QueryRow(ctx, `
		select exists (select from events where tenant_id = $1 and customer_id = $2 and ts = $3 and id = $4)`,
		a.tenant, e.CustomerID, e.At, e.ID).Scan(&committed)
	return committed, err
}
