package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/argon2"

	"github.com/odometer-metering/odometer/db/fair"
	"github.com/odometer-metering/odometer/metering"
)

// Parameters of argon2id. OWASP's Password Storage Cheat Sheet lists several sets of parameters with equal
// strength. This set needs the least memory, which matters because each hash allocates its own memory.
const (
	argonTime    = 5
	argonMemory  = 7 << 10 // KiB
	argonThreads = 1
	saltLength   = 16
)

// Passwords creates the hashes of passwords.
type Passwords struct{ pepper []byte }

// NewPasswords derives the key of the salts from the service's secret.
func NewPasswords(secret []byte) (Passwords, error) {
	pepper, err := derive(secret, "password-salts")
	return Passwords{pepper}, err
}

// Hash returns the hash of a password. The salt depends on the e-mail and on the service's secret. Several
// stored hashes of one e-mail therefore have the same salt, and one computed hash is compared with all of
// them. The number of stored hashes changes neither the response nor its duration. The database alone does
// not suffice to test a password, because the salt needs the secret.
func (p Passwords) Hash(email, password string) []byte {
	mac := hmac.New(sha256.New, p.pepper)
	mac.Write([]byte(metering.FoldEmail(email)))
	salt := mac.Sum(nil)[:saltLength]
	return argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, sha256.Size)
}

// Limits of password hashing. One hash occupies a processor and memory for as long as hundreds of other
// requests.
const (
	hashingPlaces = 4 // hashes in progress or in their pause; an address has at most half of them
	hashingRest   = 2 // pause after a hash, as a multiple of its duration
)

// hashing computes one hash at a time. After a hash, its place stays occupied during a pause of hashingRest
// times the duration of the hash. Pauses run one after another. Password guesses from any number of addresses
// therefore use at most a third of one processor.
//
// A request that finds a free place does not wait for the pauses of other requests. When a place becomes
// free, an account that has signed in from the same address before goes first. The next is the address with
// the fewest failed attempts.
type hashing struct {
	Passwords
	places   *fair.Shares[string]
	one      chan struct{} // full while a hash is computed
	rested   time.Time     // end of the last pause
	mu       sync.Mutex    // guards changes of attempts
	attempts *lru.Cache[string, int]
	proven   *lru.Cache[string, struct{}] // results of accountAt that have had a successful sign-in
}

func newHashing(passwords Passwords) (*hashing, error) {
	attempts, err := lru.New[string, int](maxProven)
	if err != nil {
		return nil, err
	}
	proven, err := lru.New[string, struct{}](maxProven)
	h := &hashing{Passwords: passwords, one: make(chan struct{}, 1), attempts: attempts, proven: proven}
	h.places = fair.NewRankedShares(hashingPlaces, h.rank)
	return h, err
}

// rank orders waiting callers. The caller with the lowest rank gets the next free place.
func (h *hashing) rank(who string) int {
	if h.proven.Contains(who) {
		return -1
	}
	attempts, _ := h.attempts.Peek(who)
	return attempts
}

// hash computes a hash when it is the turn of a caller. The caller is an address, a proven account at an
// address, or a tenant.
func (h *hashing) hash(ctx context.Context, who, email, password string) (hash []byte, err error) {
	err = h.inTurn(ctx, who, func() { hash = h.Hash(email, password) })
	return hash, err
}

// hashAt computes a hash for a sign-in attempt. account is a result of accountAt. The attempt is counted as
// failed until succeeded is called. An attempt that got no hash is not counted. Otherwise, during a flood of
// attempts, retries would lower the priority of a legitimate address.
func (h *hashing) hashAt(ctx context.Context, address, account, email, password string) ([]byte, error) {
	who := address
	if h.proven.Contains(account) {
		who = account
	}
	h.count(address, 1)
	hash, err := h.hash(ctx, who, email, password)
	if err != nil {
		h.count(address, -1)
	}
	return hash, err
}

// succeeded removes the failed attempt that hashAt counted, and records the account as proven.
func (h *hashing) succeeded(address, account string) {
	h.count(address, -1)
	h.proven.Add(account, struct{}{})
}

// count adds n to the number of failed attempts of an address.
func (h *hashing) count(address string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	attempts, _ := h.attempts.Get(address)
	h.attempts.Add(address, max(0, attempts+n))
}

var errHashing = metering.Errorf(metering.CodeOverloaded, "too many sign-ins are in progress; try again")

// inTurn waits for a free place, runs work alone, and keeps the place occupied during the pause after work.
func (h *hashing) inTurn(ctx context.Context, who string, work func()) error {
	ctx, cancel := context.WithTimeout(ctx, hashingWait)
	defer cancel()
	if err := h.places.Wait(ctx, who); err != nil {
		return errHashing.Because(err)
	}
	h.one <- struct{}{} // a short wait, because at most hashingPlaces callers have a place
	began := time.Now()
	defer func() {
		if h.rested.Before(began) {
			h.rested = began
		}
		h.rested = h.rested.Add((1 + hashingRest) * time.Since(began))
		time.AfterFunc(time.Until(h.rested), func() { h.places.Give(who, 1) })
		<-h.one
	}()
	work()
	return nil
}
