// Package db holds all SQL of the program, hand-written for pgx: one small type per noun. Methods take ctx
// first and the tenant second; an exported method is a transaction boundary. Errors that a caller can act
// on are metering.Errors.
//
// It owns the stored data and the exactness of every sum. It does not own the schema (package migrations)
// nor the rules (packages metering and billing).
package db

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// DB is a pool of connections, and one store per noun that uses it.
type DB struct {
	pool *pool

	Tenants         Tenants
	APIKeys         APIKeys
	HMACSecrets     HMACSecrets
	RequestIDs      RequestIDs
	People          People
	Members         Members
	Invitations     Invitations
	Sessions        Sessions
	OIDC            OIDC
	Erasures        Erasures
	AuditLog        AuditLog
	Customers       Customers
	Meters          Meters
	Prices          Prices
	Plans           Plans
	Quotas          Quotas
	Backfills       Backfills
	Usage           Usage
	Events          Events
	EventCounts     EventCounts
	UncountedEvents UncountedEvents
	Conflicts       Conflicts
	Unrated         Unrated
	Folds           Folds
	Providers       Providers
	Ledger          Ledger
	Syncs           Syncs
	Attention       Attention
	Links           Links
	Restores        Restores
	Invoices        Invoices
	Reconciliations Reconciliations
	Holds           Holds
	ProviderEvents  ProviderEvents
	Rotations       Rotations
	AutoSyncs       AutoSyncs
	Discrepancies   Discrepancies
	Maintenance     Maintenance
	Secrets         Secrets
	Webhooks        Webhooks
	Deliveries      Deliveries
	Alerts          Alerts
	Evaluations     Evaluations
}

// querier is the interface that a pool and a transaction share.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Bounds on the time that a statement may wait or run, unless the URL sets others. The pool sets them on
// every connection, so that no query can block the service.
const (
	lockTimeout      = 5 * time.Second
	statementTimeout = 30 * time.Second
	idleTxTimeout    = 30 * time.Second
)

// defaultConnections is the maximum size of a process's pool, unless the URL sets it.
const defaultConnections = 16

// lifetimeJitter spreads the replacement of connections that were opened at the same time.
const lifetimeJitter = 15 * time.Minute

// unmarshal copies raw JSON unchanged, because PostgreSQL has validated it, and decodes all other JSON.
func unmarshal(text []byte, into any) error {
	if raw, is := into.(*json.RawMessage); is {
		*raw = bytes.Clone(text)
		return nil
	}
	return json.Unmarshal(text, into)
}

// Open connects to TimescaleDB. url is a PostgreSQL connection URL; pool_max_conns in it bounds the pool.
//
// The service's secret yields the keys of the audit log and of the digests that identify erased events.
// With a nil secret, audited operations and ingest fail. read decodes stored prices of providers; nil: none
// are read.
func Open(ctx context.Context, url string, secret []byte, read ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read, func(config *pgxpool.Config) { byDefault(config, url) })
}

// OpenWarm is Open, and keeps the connections that tenants share open all the time. Opening a connection
// costs more than most statements, and would delay all requests of a burst.
func OpenWarm(ctx context.Context, url string, secret []byte, read ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read, func(config *pgxpool.Config) { warm(config, url) })
}

func warm(config *pgxpool.Config, url string) {
	byDefault(config, url)
	config.MinConns = shared(config)
}

// OpenForIngest is OpenWarm for a Writer and a Folder. Their statements look up many rows by full key.
// PostgreSQL plans these statements while tables are small, and keeps a plan that would build a bitmap of
// pages per key. Bitmap scans are therefore off.
func OpenForIngest(ctx context.Context, url string, secret []byte, read ReadPrice) (*DB, error) {
	return open(ctx, url, secret, read, func(config *pgxpool.Config) {
		warm(config, url)
		config.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
	})
}

// OpenSmall is OpenWarm with exactly most connections, even if the URL sets another number, for lookups by
// key. Each statement is planned once for all arguments, and with an index even while its table is small,
// because planning took twice as long as the lookup.
func OpenSmall(ctx context.Context, url string, secret []byte, most int32) (*DB, error) {
	return open(ctx, url, secret, nil, func(config *pgxpool.Config) {
		config.MaxConns, config.MinConns = most, most
		config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	})
}

// byDefault sets the maximum number of connections unless the URL does.
func byDefault(config *pgxpool.Config, url string) {
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = defaultConnections
	}
}

func open(ctx context.Context, url string, secret []byte, read ReadPrice, bound func(*pgxpool.Config)) (*DB, error) {
	key, err := newAuditKey(secret)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a PostgreSQL connection URL") // the cause may echo the password
	}
	for name, limit := range map[string]time.Duration{
		"lock_timeout":                        lockTimeout,
		"statement_timeout":                   statementTimeout,
		"idle_in_transaction_session_timeout": idleTxTimeout,
	} {
		if config.ConnConfig.RuntimeParams[name] == "" {
			config.ConnConfig.RuntimeParams[name] = fmt.Sprint(limit.Milliseconds())
		}
	}
	bound(config)
	config.MaxConnLifetimeJitter = lifetimeJitter
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	config.ConnConfig.RuntimeParams["jit"] = "off" // compiling a statement of many parts takes longer than running it: 0.4 s of 0.41
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		codec := &pgtype.TimestamptzCodec{ScanLocation: time.UTC} // without it: the machine's time zone
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: codec})
		written := &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: unmarshal}
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: written})
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: unmarshal}})
		return nil
	}
	config.AfterRelease = isWritable
	opened, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	pool := newPool(opened)
	pool.audit = key
	return &DB{
		pool:            pool,
		Tenants:         Tenants{pool},
		APIKeys:         APIKeys{pool},
		HMACSecrets:     HMACSecrets{pool},
		RequestIDs:      RequestIDs{pool},
		People:          People{pool},
		Members:         Members{pool},
		Invitations:     Invitations{pool},
		Sessions:        Sessions{pool},
		OIDC:            OIDC{pool},
		AuditLog:        AuditLog{pool},
		Customers:       Customers{pool},
		Erasures:        Erasures{pool, read},
		Meters:          Meters{pool},
		Prices:          Prices{pool},
		Plans:           Plans{pool},
		Quotas:          Quotas{pool, read},
		Backfills:       Backfills{pool},
		Usage:           Usage{pool},
		Events:          Events{pool},
		EventCounts:     EventCounts{pool},
		UncountedEvents: UncountedEvents{pool},
		Conflicts:       Conflicts{pool},
		Unrated:         Unrated{pool, read},
		Folds:           Folds{pool},
		Providers:       Providers{pool},
		Ledger:          Ledger{pool, read},
		Syncs:           Syncs{pool},
		Attention:       Attention{pool},
		Links:           Links{pool, read},
		Restores:        Restores{pool, read},
		Invoices:        Invoices{pool},
		Reconciliations: Reconciliations{pool},
		Holds:           Holds{pool, read},
		ProviderEvents:  ProviderEvents{pool},
		Rotations:       Rotations{pool},
		AutoSyncs:       AutoSyncs{pool},
		Discrepancies:   Discrepancies{pool},
		Maintenance:     Maintenance{pool},
		Secrets:         Secrets{pool},
		Webhooks:        Webhooks{pool},
		Deliveries:      Deliveries{pool},
		Alerts:          Alerts{pool},
		Evaluations:     Evaluations{pool, read},
	}, nil
}

// isWritable reports whether a connection may be reused. A connection to a read-only server may not: after
// a failover another server accepts writes, and a new connection finds it.
func isWritable(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("in_hot_standby") != "on" && conn.PgConn().ParameterStatus("default_transaction_read_only") != "on"
}

// Close waits until the connections in use are released, and closes the pool.
func (d *DB) Close() { d.pool.Close() }

// beginner is a pool or a transaction. Begin of a transaction creates a savepoint.
type beginner interface {
	querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// inTx runs fn in one read-committed transaction and commits it together with the audit entries of fn.
func inTx(ctx context.Context, pool beginner, fn func(tx pgx.Tx) error) error {
	return coded(pgx.BeginFunc(ctx, pool, withAudit(ctx, pool, fn)))
}

var repeatableRead = pgx.TxOptions{IsoLevel: pgx.RepeatableRead}

// Options of transactions that look up a few rows by key, hundreds of times a second. Their statements are
// planned once for all arguments, because planning takes longer than running them, and with an index even
// while the tables are small.
var (
	lookUp     = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read; " + planOnce}
	readLookUp = pgx.TxOptions{BeginQuery: "begin isolation level repeatable read read only; " + planOnce}
)

const planOnce = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off"

// readAtOneInstant runs fn in a read-only transaction that sees one snapshot of the database.
func readAtOneInstant(ctx context.Context, pool *pool, fn func(tx pgx.Tx) error) error {
	return coded(pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, fn))
}

// lockTenant locks the tenant exclusively until the end of the transaction. Ingest holds the same lock
// shared, so only this transaction can change how the tenant's events are counted.
func lockTenant(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(`+tenantLock+`)`, tenant)
	return err
}

// lockTenantShared blocks lockTenant of other transactions until the end of this one.
func lockTenantShared(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock_shared(`+tenantLock+`)`, tenant)
	return err
}

// tenantLock is the SQL of the advisory lock key of lockTenant.
const tenantLock = `$1`

// oneAtATime serializes the transactions that change access to a tenant, or its billing connection. It does
// not block ingest.
func oneAtATime(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `select from tenants where id = $1 for no key update`, tenant)
	return err
}

// raiseEpoch separates the events ingested before this transaction from later ones. The caller holds the
// tenant's lock.
func raiseEpoch(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (epoch int64, err error) {
	err = tx.QueryRow(ctx, `update tenants set epoch = epoch + 1 where id = $1 returning epoch`, tenant).Scan(&epoch)
	return epoch, err
}

// allowLongStatements raises the statement timeout of the transaction to ten minutes, for work that no
// request waits for.
func allowLongStatements(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `set local statement_timeout = '10min'`)
	return err
}

// SQLSTATEs that the program acts on (PostgreSQL documentation, appendix A).
const (
	stateUniqueViolation       = "23505"
	stateReadOnly              = "25006"
	stateSerialization         = "40001"
	stateDeadlock              = "40P01"
	stateInsufficientPrivilege = "42501"
	stateLockNotAvailable      = "55P03"
	stateDiskFull              = "53100"
	stateQueryCanceled         = "57014"
	stateInternal              = "XX000"
)

// faultClasses are the SQLSTATE classes of server faults, which every other request would meet too.
var faultClasses = []string{
	"08", // connection exception
	"53", // insufficient resources: a full disk, no memory, too many connections
	"57", // operator intervention: a shutdown
	"58", // system error: a file cannot be read or written
	"F0", // configuration file error
	"XX", // internal error: corrupted data
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// overtakenByDrop reports whether a chunk was dropped between the planning and the execution of a
// statement.
func overtakenByDrop(err error) bool {
	return sqlState(err) == stateInternal && strings.Contains(err.Error(), "could not open relation with OID")
}

// coded converts a driver error to a metering.Error. It returns coded errors and nil unchanged.
func coded(err error) error {
	if err == nil {
		return nil
	}
	var already *metering.Error
	if errors.As(err, &already) {
		return err
	}
	if overtakenByDrop(err) {
		return metering.Errorf(metering.CodeOverloaded, "the database is busy; try again").Because(err)
	}
	switch sqlState(err) {
	case stateLockNotAvailable, stateQueryCanceled, stateDeadlock, stateSerialization:
		return metering.Errorf(metering.CodeOverloaded, "the database is busy; try again").Because(err)
	case stateReadOnly:
		return metering.Errorf(metering.CodeUnavailable, "the database accepts no writes; try again").Because(err)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Errorf(metering.CodeNotFound, "not found").Because(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return metering.Errorf(metering.CodeUnavailable, "the database did not answer in time; try again").Because(err)
	}
	if isServerFault(err) {
		return metering.Errorf(metering.CodeUnavailable, "the database is not available; try again").Because(err)
	}
	return err
}

// isServerFault reports whether err is a fault of the database server and not of the request.
func isServerFault(err error) bool {
	state := sqlState(err)
	ofFaults := func(class string) bool { return strings.HasPrefix(state, class) }
	return disconnected(err) || state == stateReadOnly || state != stateQueryCanceled && slices.ContainsFunc(faultClasses, ofFaults)
}

// disconnected reports whether err means that the connection was lost or never made.
func disconnected(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
