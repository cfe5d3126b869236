package db

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Claim is a request with an idempotency key.
type Claim struct {
	Key       string
	Operation string
	Hash      []byte // of the body
}

// Once calls create and commits its effects and its answer together with the key. If the key was used before,
// Once returns the stored answer, or CodeInvalid if the operation or the body differs. If several calls use
// the same key concurrently, one call runs create and the others wait for it. If create fails, the key stays
// unused.
func (d *DB) Once(ctx context.Context, tenant metering.TenantID, claim Claim, create func(within Creators) (answer []byte, err error)) (former []byte, err error) {
	err = pg.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			insert into idempotency_keys (tenant_id, key, operation, request_hash, answer)
			values ($1, $2, $3, $4, 'null')
			on conflict do nothing`, tenant, claim.Key, claim.Operation, claim.Hash)
		if err != nil {
			return fmt.Errorf("claim idempotency key: %w", err)
		}
		if tag.RowsAffected() == 0 {
			former, err = formerAnswer(ctx, tx, tenant, claim)
			return err
		}
		answer, err := create(creatorsWithin(tx))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update idempotency_keys set answer = $3 where tenant_id = $1 and key = $2`, tenant, claim.Key, answer)
		return err
	})
	return former, err
}

// Creators are the stores of the resources that a request with an idempotency key can create.
type Creators struct {
	accessCreators
	catalogStores

	Retries ledger.Retries
	Alerts  limits.Alerts
}

// Creators returns stores that use the pool. Each call of a method is its own transaction.
func (d *DB) Creators() Creators {
	return creatorsWithin(d.pool)
}

func creatorsWithin(tx pg.Beginner) Creators {
	return Creators{access.NewCreators(tx), catalog.New(tx), ledger.NewRetries(tx), limits.NewAlerts(tx)}
}

// formerAnswer returns the stored answer to the request that used the key before. It returns CodeInvalid if the
// operation or the body differs.
func formerAnswer(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, claim Claim) (answer []byte, err error) {
	var former Claim
	err = tx.QueryRow(ctx, `select operation, request_hash, answer from idempotency_keys where tenant_id = $1 and key = $2`,
		tenant, claim.Key).Scan(&former.Operation, &former.Hash, &answer)
	if err != nil {
		return nil, err
	}
	if former.Operation != claim.Operation || !bytes.Equal(former.Hash, claim.Hash) {
		return nil, metering.Invalid("header.Idempotency-Key", "was already used for another request; send this request with a new key")
	}
	return answer, nil
}
