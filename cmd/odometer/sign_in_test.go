package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestDrillMemoryStaysBoundedWhileManySignIn tries passwords from more addresses than any limit keeps, while
// other clients ingest.
func TestDrillMemoryStaysBoundedWhileManySignIn(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable, Env: []string{"TRUSTED_PROXIES=127.0.0.0/8"}})
	_, key := system.LimitedTenant(t, 1_000_000)
	api := system.API(t)
	var tried atomic.Int64
	var clients sync.WaitGroup
	until := time.Now().Add(5 * time.Second)
	for range 64 {
		clients.Go(func() {
			for time.Now().Before(until) {
				n := tried.Add(1)
				status := signIn(t, api.URL, n)
				if status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
					t.Errorf("attempt %d: %d", n, status)
				}
			}
		})
	}
	body := batch(1000, "x")
	for range 8 {
		clients.Go(func() {
			for time.Now().Before(until) {
				post(t, api.URL, body, bearer(key))
			}
		})
	}
	clients.Wait()
	requireMemory(t, api, proc.MostOfAPI, fmt.Sprintf("%d attempts", tried.Load()))
}

// signIn tries a wrong password, with an account and an address that depend on n.
func signIn(t *testing.T, url string, n int64) int {
	body := fmt.Appendf(nil, `{"email":"a%d@example.com","password":"not a password"}`, n)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/auth/login", bytes.NewReader(body))
	if err != nil {
		return -1
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forwarded-For", fmt.Sprintf("198.18.%d.%d", n>>8&255, n&255))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
