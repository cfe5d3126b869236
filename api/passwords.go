package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/odometer-metering/odometer/metering"
)

// What a new hash costs (OWASP's Password Storage Cheat Sheet). Old ones say
// themselves what they cost, within the bounds.
const (
	argonMemory    = 19 << 10 // KiB
	argonTime      = 2
	argonLanes     = 1
	argonSalt      = 16
	argonKey       = 32
	argonMaxMemory = 64 << 10 // KiB
	argonMaxTime   = 10
)

// Hashing is bounded, because each takes as much memory as thousands of other requests.
const (
	maxHashing  = 1
	hashingWait = 5 * time.Second
)

// passwords hashes and checks passwords, few at a time.
type passwords struct {
	slots chan struct{}
	dummy string // of a password that nobody has
}

func newPasswords() *passwords {
	return &passwords{make(chan struct{}, maxHashing), HashPassword(rand.Text())}
}

// HashPassword returns the argon2id hash of a password, as a PHC string.
func HashPassword(password string) string {
	salt := make([]byte, argonSalt)
	rand.Read(salt) // never fails, or ends the program
	key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonLanes, argonKey)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonLanes, encode(salt), encode(key))
}

// hash is HashPassword in its turn.
func (p *passwords) hash(ctx context.Context, password string) (hash string, err error) {
	err = p.inTurn(ctx, func() { hash = HashPassword(password) })
	return hash, err
}

// match says whether the password is the hash's. With nil it takes as long and
// says no.
func (p *passwords) match(ctx context.Context, hash *string, password string) (matches bool, err error) {
	against := p.dummy
	if hash != nil {
		against = *hash
	}
	err = p.inTurn(ctx, func() { matches = isPassword(against, password) && hash != nil })
	return matches, err
}

func (p *passwords) inTurn(ctx context.Context, work func()) error {
	ctx, cancel := context.WithTimeout(ctx, hashingWait)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return metering.Errorf(metering.CodeOverloaded, "too many are signing in; try again").Because(ctx.Err())
	}
	defer func() { <-p.slots }()
	work()
	return nil
}

func isPassword(hash, password string) bool {
	var version, memory, rounds, lanes uint32
	var encodedSalt, encodedKey string
	_, err := fmt.Sscanf(hash, "$argon2id$v=%d$m=%d,t=%d,p=%d$%22s$%43s", &version, &memory, &rounds, &lanes, &encodedSalt, &encodedKey)
	if err != nil || version != argon2.Version || memory > argonMaxMemory || rounds == 0 || rounds > argonMaxTime || lanes != argonLanes {
		return false
	}
	salt, badSalt := base64.RawStdEncoding.DecodeString(encodedSalt)
	key, badKey := base64.RawStdEncoding.DecodeString(encodedKey)
	if badSalt != nil || badKey != nil || len(key) != argonKey {
		return false
	}
	return subtle.ConstantTimeCompare(argon2.IDKey([]byte(password), salt, rounds, memory, argonLanes, argonKey), key) == 1
}
