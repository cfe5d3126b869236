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

// Parameters of argon2id. OWASP's Password Storage Cheat Sheet lists sets of equal strength. This set needs
// the least memory, which matters because each hash allocates its own.
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

// Hash returns the hash of a password. The salt depends on the e-mail and the service's secret. One hash is
// therefore compared with all passwords of this e-mail, and their number changes neither the response nor its
// duration. The database alone does not suffice to test a password, because the salt needs the secret.
func (p Passwords) Hash(email, password string) []byte {
	mac := hmac.New(sha256.New, p.pepper)
	mac.Write([]byte(metering.FoldEmail(email)))
	salt := mac.Sum(nil)[:saltLength]
	return argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, sha256.Size)
}

// Bounds of password hashing. A hash occupies a processor and memory for as long as hundreds of other
// requests.
const (
	hashingPlaces = 4 // an address has at most half of them
	hashingRest   = 2 // pause after a hash, as a multiple of its duration
)

// hashing computes one hash at a time. Each hash keeps its place during a pause of hashingRest times its
// duration. Pauses follow one another. Guesses from any number of addresses therefore use at most a third of
// one processor. A request that gets a free place does not wait for the pauses of others. An account that has
// signed in from an address before goes first. Other requests wait behind addresses with fewer failed
// attempts.
type hashing struct {
	Passwords
	places   *fair.Shares[string]
	one      chan struct{} // full while a hash is computed
	rested   time.Time     // end of the last pause
	mu       sync.Mutex    // guards changes of attempts
	attempts *lru.Cache[string, int]
	proven   *lru.Cache[string, struct{}] // hashes of account and address, after a successful sign-in
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

func (h *hashing) rank(who string) int {
	if h.proven.Contains(who) {
		return -1
	}
	attempts, _ := h.attempts.Peek(who)
	return attempts
}

// hash computes a hash in the turn of a caller: an address or a proven account.
func (h *hashing) hash(ctx context.Context, who, email, password string) (hash []byte, err error) {
	err = h.inTurn(ctx, who, func() { hash = h.Hash(email, password) })
	return hash, err
}

// hashAt computes a hash for a sign-in attempt. account is the hash of the e-mail and the address. The
// attempt counts as failed until succeeded is called. An attempt that got no hash does not count. Otherwise
// retries during a flood would move an honest address behind the others.
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

// succeeded removes the failed attempt that hashAt has counted, and marks the account as proven.
func (h *hashing) succeeded(address, account string) {
	h.count(address, -1)
	h.proven.Add(account, struct{}{})
}

func (h *hashing) count(address string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	attempts, _ := h.attempts.Get(address)
	h.attempts.Add(address, max(0, attempts+n))
}

func (h *hashing) inTurn(ctx context.Context, who string, work func()) error {
	ctx, cancel := context.WithTimeout(ctx, hashingWait)
	defer cancel()
	if err := h.places.Wait(ctx, who); err != nil {
		return metering.Errorf(metering.CodeOverloaded, "too many sign-ins are in progress; try again").Because(err)
	}
	h.one <- struct{}{} // a short wait: there are only hashingPlaces places
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
