package usage

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/odometer-metering/odometer/metering"
)

// insertedAtMost is the maximum number of events that are stored by INSERT, which shares a round trip with other
// statements. More events are stored by COPY, which needs a round trip of its own, but less time and WAL per
// event.
const insertedAtMost = 100

// eventColumns are the columns of the table events that COPY writes, with their types.
var eventColumns = []struct {
	name string
	oid  uint32
}{
	{"tenant_id", pgtype.Int8OID}, {"customer_id", pgtype.Int8OID}, {"ts", pgtype.TimestamptzOID}, {"ingested_at", pgtype.TimestamptzOID},
	{"epoch", pgtype.Int8OID}, {"id", pgtype.UUIDOID}, {"idempotency_uuid", pgtype.UUIDOID}, {"event_type", pgtype.TextOID},
	{"value", pgtype.NumericOID}, {"properties", pgtype.JSONBOID}, {"idempotency_key", pgtype.TextOID},
}

var copyFromStdin = func() string {
	var names []string
	for _, c := range eventColumns {
		names = append(names, c.name)
	}
	return "copy events (" + strings.Join(names, ", ") + ") from stdin binary"
}()

// copyEvents stores the events in one round trip. pgx's CopyFrom would query the column types each time.
func copyEvents(ctx context.Context, conn *pgx.Conn, tenant metering.TenantID, epoch int64, events []*metering.Event) error {
	data := copyData{types: conn.TypeMap(), bytes: []byte(copyHeader)}
	for _, e := range events {
		var id, key, properties any
		if uuid, ok := uuidOf(e.IdempotencyKey); ok {
			id = [16]byte(uuid)
		} else if e.IdempotencyKey != "" {
			key = e.IdempotencyKey
		}
		if e.Properties != nil {
			properties = e.Properties
		}
		var value pgtype.Numeric
		if err := value.Scan(e.Value.String()); err != nil {
			return fmt.Errorf("value: %w", err)
		}
		err := data.row(int64(tenant), int64(e.CustomerID), e.At, e.ReceivedAt, epoch, [16]byte(e.ID), id, e.EventType, value, properties, key)
		if err != nil {
			return err
		}
	}
	data.bytes = append(data.bytes, copyEnd...)
	_, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(data.bytes), copyFromStdin)
	return err
}

// copyData encodes rows in the binary format of COPY:
// https://www.postgresql.org/docs/17/sql-copy.html#SQL-COPY-FILE-FORMATS
type copyData struct {
	types *pgtype.Map
	bytes []byte
}

const (
	copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no flags, no extension
	copyEnd    = "\xff\xff"
	copyNull   = 0xffffffff // replaces the length of a value that is null
)

// row appends a row with the values of eventColumns. A nil value becomes null.
func (c *copyData) row(values ...any) error {
	c.bytes = binary.BigEndian.AppendUint16(c.bytes, uint16(len(values)))
	for i, v := range values {
		start := len(c.bytes)
		c.bytes = binary.BigEndian.AppendUint32(c.bytes, copyNull)
		if v == nil {
			continue
		}
		encoded, err := c.types.Encode(eventColumns[i].oid, pgtype.BinaryFormatCode, v, c.bytes)
		if err != nil {
			return fmt.Errorf("%s: %w", eventColumns[i].name, err)
		}
		c.bytes = encoded
		binary.BigEndian.PutUint32(c.bytes[start:], uint32(len(c.bytes)-start-4))
	}
	return nil
}

// insertEvents adds the statement that stores the events to a batch.
func insertEvents(batch *pgx.Batch, tenant metering.TenantID, epoch int64, events []*metering.Event) {
	n := len(events)
	customers, at, received, ids := make([]int64, n), make([]time.Time, n), make([]time.Time, n), make([][16]byte, n)
	keyIDs, keys := make([]*[16]byte, n), make([]*string, n)
	types, values, properties := make([]string, n), make([]string, n), make([]*string, n)
	for i, e := range events {
		customers[i], at[i], received[i], ids[i] = int64(e.CustomerID), e.At, e.ReceivedAt, e.ID
		if id, ok := uuidOf(e.IdempotencyKey); ok {
			keyIDs[i] = (*[16]byte)(&id)
		} else if e.IdempotencyKey != "" {
			keys[i] = &e.IdempotencyKey
		}
		types[i], values[i] = e.EventType, e.Value.String()
		if e.Properties != nil {
			properties[i] = new(string(e.Properties))
		}
	}
	batch.Queue(`
		insert into events (tenant_id, customer_id, ts, ingested_at, epoch, id, idempotency_uuid, event_type, value, properties, idempotency_key)
		select $1, customer_id, ts, ingested_at, $2, id, key_id, event_type, value, properties, key
		from unnest($3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::uuid[], $7::uuid[], $8::text[], $9::text[]::numeric[], $10::text[]::jsonb[], $11::text[])
		  sent (customer_id, ts, ingested_at, id, key_id, event_type, value, properties, key)`,
		tenant, epoch, customers, at, received, ids, keyIDs, types, values, properties, keys)
}
