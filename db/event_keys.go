package db

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// eventKey is what an idempotency key is known by among the tenant's, as
// event_key in SQL: a UUID is itself, and of any other key there are 16 bytes of
// its SHA-256.
type eventKey = [16]byte

func eventKeyOf(sent string) eventKey {
	if id, ok := uuidOf(sent); ok {
		return id
	}
	sum := sha256.Sum256([]byte(sent))
	return eventKey(sum[:16])
}

// uuidOf is a key that is a UUID, written as PostgreSQL writes one.
func uuidOf(sent string) (id uuid.UUID, ok bool) {
	id, err := uuid.Parse(sent)
	return id, err == nil && id.String() == sent
}

// sentKey is what the idempotency key of an event e was, as SQL; null where it had none.
const sentKey = `coalesce(e.idempotency_uuid::text, e.idempotency_key)`

// contentDigest tells a repeat from an event with other content under its key.
func contentDigest(e *metering.Event) int64 {
	return int64(binary.BigEndian.Uint64(e.Hash[:8]))
}
