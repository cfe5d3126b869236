package usage

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/metering"
)

// eventKey identifies an idempotency key within a tenant. The SQL function event_key returns the same value. A
// UUID is its own eventKey, unless its version is digestVersion. The eventKey of any other key is a UUID of
// digestVersion with the first 16 bytes of the key's SHA-256. So no UUID that a client sends equals the eventKey
// of another key.
type eventKey = [16]byte

// digestVersion is the UUID version that RFC 9562 reserves for custom formats.
const digestVersion = 8

// eventKeyOf returns the eventKey of an idempotency key as it was sent.
func eventKeyOf(sent string) eventKey {
	if id, ok := uuidOf(sent); ok && id.Version() != digestVersion {
		return id
	}
	sum := sha256.Sum256([]byte(sent))
	key := eventKey(sum[:16])
	key[6] = digestVersion<<4 | key[6]&0x0f
	return key
}

// uuidOf parses an idempotency key. ok reports whether the key is a UUID in the form that PostgreSQL prints.
func uuidOf(sent string) (id uuid.UUID, ok bool) {
	id, err := uuid.Parse(sent)
	return id, err == nil && id.String() == sent
}

// SentKey is the SQL of the idempotency key of an event e as it was sent; null if the event had none.
const SentKey = `coalesce(e.idempotency_uuid::text, e.idempotency_key)`

// contentDigest returns a digest of an event's content. An event with a known key is a repeat if the digests
// are equal, and otherwise a conflict.
func contentDigest(e *metering.Event) int64 {
	return int64(binary.BigEndian.Uint64(e.Hash[:8]))
}

// ErasedKey returns the digest that identifies an erased idempotency key of the tenant.
func ErasedKey(digests audit.Key, tenant metering.TenantID, key string) []byte {
	return digests.MAC([]byte("erased key"), []byte(tenant.String()), []byte(key))
}
