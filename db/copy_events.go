package db

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/odometer-metering/odometer/metering"
)

// eventColumns are those of events that COPY writes, and their types.
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

// copyEvents writes the events in one round trip. pgx's CopyFrom would ask for the
// columns' types each time.
func copyEvents(ctx context.Context, conn *pgx.Conn, tenant metering.TenantID, epoch int64, events []*metering.Event) error {
	if len(events) == 0 {
		return nil
	}
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

// copyData is what COPY reads in its binary format:
// https://www.postgresql.org/docs/17/sql-copy.html#SQL-COPY-FILE-FORMATS
type copyData struct {
	types *pgtype.Map
	bytes []byte
}

const (
	copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no flags, no extension
	copyEnd    = "\xff\xff"
	copyNull   = 0xffffffff // in place of a value's length
)

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
