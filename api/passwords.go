package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/argon2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// What a hash costs, by argon2id: of what OWASP's Password Storage Cheat Sheet has as
// equally strong, that with the least memory, which each hash has to come by anew.
const (
	argonTime    = 5
	argonMemory  = 7 << 10 // KiB
	argonThreads = 1
	saltLength   = 16
)

// Passwords makes the hashes of passwords.
type Passwords struct{ pepper []byte }

// NewPasswords derives the key of salts from the service's secret.
func NewPasswords(secret []byte) (Passwords, error) {
	pepper, err := derive(secret, "password-salts")
	return Passwords{pepper}, err
}

// Hash returns the hash of an e-mail's password. The salt is the e-mail's own, so
// that one hash is compared with whatever passwords somebody of that e-mail has:
// how many there are changes neither the answer nor the time. Whoever holds the
// database alone cannot make the salt, and so try no password.
func (p Passwords) Hash(email, password string) []byte {
	mac := hmac.New(sha256.New, p.pepper)
	mac.Write([]byte(metering.FoldEmail(email)))
	salt := mac.Sum(nil)[:saltLength]
	return argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, sha256.Size)
}

// Hashing is bounded, because each takes a processor and memory for as long as hundreds
// of other requests.
const (
	hashingPlaces = 4 // of which an address has at most half
	hashingRest   = 2 // times as long as a hash took
)

// hashing makes one hash at a time. Whoever has had one made keeps a place until it has
// rested, after all that were made before: so those who guess, wherever, take a third of
// a processor's time, and somebody else who comes finds a place, and waits for nobody's rest.
// An account that has signed in at an address before is first there. The others
// wait behind addresses with fewer failed attempts.
type hashing struct {
	Passwords
	places   *db.Shares[string]
	one      chan struct{} // is full while a hash is made
	rested   time.Time     // when all that were made have rested
	mu       sync.Mutex    // of changes of attempts
	attempts *lru.Cache[string, int]
	proven   *lru.Cache[string, struct{}] // names of accounts at addresses
}

func newHashing(passwords Passwords) (*hashing, error) {
	attempts, err := lru.New[string, int](maxProven)
	if err != nil {
		return nil, err
	}
	proven, err := lru.New[string, struct{}](maxProven)
	h := &hashing{Passwords: passwords, one: make(chan struct{}, 1), attempts: attempts, proven: proven}
	h.places = db.NewRankedShares(hashingPlaces, h.rank)
	return h, err
}

func (h *hashing) rank(who string) int {
	if h.proven.Contains(who) {
		return -1
	}
	attempts, _ := h.attempts.Peek(who)
	return attempts
}

// hash is Hash in the turn of whoever asks.
func (h *hashing) hash(ctx context.Context, who, email, password string) (hash []byte, err error) {
	err = h.inTurn(ctx, who, func() { hash = h.Hash(email, password) })
	return hash, err
}

// hashAt is hash for somebody who signs in at an address as an account, which names
// both. It counts the attempt until succeeded is called. An attempt without a hash does not
// count: during a flood, retries would otherwise put an honest address behind the others.
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

// succeeded takes back an attempt that was a sign-in.
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
	h.one <- struct{}{} // soon: few have a place
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
