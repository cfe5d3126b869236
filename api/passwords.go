package api

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/alexedwards/argon2id"

	"github.com/odometer-metering/odometer/metering"
)

// argonParams is what a new hash costs (OWASP's Password Storage Cheat Sheet).
// Old ones say themselves what they cost, within the bounds.
var argonParams = &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

const (
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
	hash, _ := argon2id.CreateHash(password, argonParams) // fails only where crypto/rand does, which ends the program
	return hash
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
	cost, _, _, err := argon2id.DecodeHash(hash)
	if err != nil || cost.Memory > argonMaxMemory || cost.Iterations == 0 || cost.Iterations > argonMaxTime ||
		cost.Parallelism != argonParams.Parallelism || cost.KeyLength != argonParams.KeyLength {
		return false
	}
	matches, err := argon2id.ComparePasswordAndHash(password, hash)
	return err == nil && matches
}
