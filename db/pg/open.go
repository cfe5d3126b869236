package pg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// Bounds on the time that a statement may wait or run, unless the URL sets others. The pool sets them on
// every connection, so that no query can block the service.
const (
	lockTimeout      = 5 * time.Second
	StatementTimeout = 30 * time.Second
	idleTxTimeout    = 30 * time.Second
)

// defaultConnections is the maximum size of a process's pool, unless the URL sets it.
const defaultConnections = 16

// lifetimeJitter spreads the replacement of connections that were opened at the same time.
const lifetimeJitter = 15 * time.Minute

// Tuning adapts the configuration of a pool to its use.
type Tuning func(*pgxpool.Config)

// KeepWarm keeps the connections that tenants share open all the time. Opening a connection costs more than
// most statements.
func KeepWarm(config *pgxpool.Config) { config.MinConns = shared(config) }

// AvoidBitmapScans disables bitmap scans, for connections with statements that look up many rows by full key.
func AvoidBitmapScans(config *pgxpool.Config) {
	config.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
}

// PlanOncePerStatement opens a fixed number of connections. Each connection plans a statement once for all arguments.
// The plan uses an index even while the table is small.
func PlanOncePerStatement(connections int32) Tuning {
	return func(config *pgxpool.Config) {
		config.MaxConns, config.MinConns = connections, connections
		config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	}
}

// Open connects to TimescaleDB. url is a PostgreSQL connection URL; pool_max_conns in it bounds the pool. key is
// the key of the audit log; with nil, audited transactions fail.
func Open(ctx context.Context, url string, key audit.Key, tunings ...Tuning) (*Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a PostgreSQL connection URL") // the cause may echo the password
	}
	for name, limit := range map[string]time.Duration{
		"lock_timeout":                        lockTimeout,
		"statement_timeout":                   StatementTimeout,
		"idle_in_transaction_session_timeout": idleTxTimeout,
	} {
		if config.ConnConfig.RuntimeParams[name] == "" {
			config.ConnConfig.RuntimeParams[name] = fmt.Sprint(limit.Milliseconds())
		}
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = defaultConnections
	}
	for _, tune := range tunings {
		tune(config)
	}
	config.MaxConnLifetimeJitter = lifetimeJitter
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	config.ConnConfig.RuntimeParams["jit"] = "off" // compiling a statement of many parts takes longer than running it: 0.4 s of 0.41
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		codec := &pgtype.TimestamptzCodec{ScanLocation: time.UTC} // the default is the machine's time zone
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
	return &Pool{
		Pool: opened, shares: fair.NewShares[metering.TenantID](int64(shared(config))), audit: key,
		Stopwatch: stopwatch, TurnTimeout: turnTimeout, FlushEvery: flushEvery, FlushTimeout: flushTimeout,
	}, nil
}

// unmarshal copies raw JSON unchanged, because PostgreSQL has validated it, and decodes all other JSON.
func unmarshal(text []byte, into any) error {
	if raw, is := into.(*json.RawMessage); is {
		*raw = bytes.Clone(text)
		return nil
	}
	return json.Unmarshal(text, into)
}

// isWritable reports whether a connection may be reused. A connection to a read-only server is closed. After a
// failover, another server accepts writes, and a new connection reaches that server.
func isWritable(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("in_hot_standby") != "on" && conn.PgConn().ParameterStatus("default_transaction_read_only") != "on"
}
