package db

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// eventKey is what an idempotency key is known by among the tenant's, as
// event_key in SQL: a UUID is itself, and of any other key there are 16 bytes of
// its SHA-256. These are a UUID of digestVersion, and a key that is one counts as
// any other key: no UUID that a client sends is the digest of another key.
type eventKey = [16]byte

// digestVersion is the version of UUIDs that RFC 9562 leaves to each service.
const digestVersion = 8

func eventKeyOf(sent string) eventKey {
	if id, ok := uuidOf(sent); ok && id.Version() != digestVersion {
		return id
	}
	sum := sha256.Sum256([]byte(sent))
	key := eventKey(sum[:16])
	key[6] = digestVersion<<4 | key[6]&0x0f
	return key
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
