package api

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/alexedwards/argon2id"

	"github.com/odometer-metering/odometer/db"
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

// passwords hashes and checks passwords, few at a time, and by turns: who makes
// many wait, such as a tenant that makes members or an address that guesses,
// waits for its own.
type passwords struct {
	slots *db.Shares[string]
	dummy string // of a password that nobody has
}

func newPasswords() *passwords {
	return &passwords{db.NewShares[string](maxHashing), HashPassword(rand.Text())}
}

// HashPassword returns the argon2id hash of a password, as a PHC string.
func HashPassword(password string) string {
	hash, _ := argon2id.CreateHash(password, argonParams) // fails only where crypto/rand does, which ends the program
	return hash
}

// hash is HashPassword in the turn of whoever asks.
func (p *passwords) hash(ctx context.Context, who, password string) (hash string, err error) {
	err = p.inTurn(ctx, who, func() { hash = HashPassword(password) })
	return hash, err
}

// match says whether the password is the hash's. With nil it takes as long and
// says no.
func (p *passwords) match(ctx context.Context, who string, hash *string, password string) (matches bool, err error) {
	against := p.dummy
	if hash != nil {
		against = *hash
	}
	err = p.inTurn(ctx, who, func() { matches = isPassword(against, password) && hash != nil })
	return matches, err
}

func (p *passwords) inTurn(ctx context.Context, who string, work func()) error {
	ctx, cancel := context.WithTimeout(ctx, hashingWait)
	defer cancel()
	if err := p.slots.Wait(ctx, who); err != nil {
		return metering.Errorf(metering.CodeOverloaded, "too many are signing in; try again").Because(err)
	}
	defer p.slots.Give(who, 1)
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
