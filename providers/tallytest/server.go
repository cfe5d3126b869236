// Package tallytest is a billing provider for tests only, with its server in this process. It adds up
// reports, accepts decimals and creates no invoices.
package tallytest

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Server is the provider's server. It has accounts of customers, each with a contract for a limited time.
type Server struct {
	mux      *http.ServeMux
	lock     sync.Mutex
	tokens   map[string]account
	accounts map[string]contract
	reports  map[string]usage // by id
	lose     int              // number of responses to drop
}

type account struct {
	ID string `json:"id"`
}

type contract struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

type usage struct {
	Customer string           `json:"customer"`
	Meter    string           `json:"meter"`
	Quantity metering.Decimal `json:"quantity"`
}

// NewServer returns a server without accounts.
func NewServer() *Server {
	s := &Server{mux: http.NewServeMux(), tokens: map[string]account{}, accounts: map[string]contract{}, reports: map[string]usage{}}
	s.mux.HandleFunc("GET /account", func(w http.ResponseWriter, r *http.Request) {
		a, known := s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		answer(w, known, a)
	})
	s.mux.HandleFunc("GET /contracts/{customer}", func(w http.ResponseWriter, r *http.Request) {
		c, known := s.accounts[r.PathValue("customer")]
		answer(w, known, c)
	})
	s.mux.HandleFunc("GET /totals/{customer}/{meter}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, true, total{s.total(r.PathValue("customer"), r.PathValue("meter"))})
	})
	s.mux.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, r *http.Request) {
		report, known := s.reports[r.PathValue("id")]
		answer(w, known, report)
	})
	s.mux.HandleFunc("PUT /reports/{id}", func(w http.ResponseWriter, r *http.Request) {
		var report usage
		if json.NewDecoder(r.Body).Decode(&report) != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		s.reports[r.PathValue("id")] = report
		if s.lose > 0 {
			s.lose--
			panic(http.ErrAbortHandler)
		}
		answer(w, true, report)
	})
	return s
}

type total struct {
	Total metering.Decimal `json:"total"`
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.mux.ServeHTTP(w, r)
}

// answer writes the body as JSON, or the status 404 if known is false.
func answer(w http.ResponseWriter, known bool, body any) {
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Issue registers a token of an account.
func (s *Server) Issue(token, id string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.tokens[token] = account{id}
}

// Sign adds a contract of the customer for the time range.
func (s *Server) Sign(customer string, r metering.Range) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.accounts[customer] = contract{r.Start, r.End}
}

// Lose makes the server accept the next n reports without a response.
func (s *Server) Lose(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.lose = n
}

// Total returns the sum of the reports for a meter of the customer.
func (s *Server) Total(customer, meter string) metering.Decimal {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.total(customer, meter)
}

// total returns the sum of the reports of a customer and meter.
func (s *Server) total(customer, meter string) (sum metering.Decimal) {
	for _, r := range s.reports {
		if r.Customer == customer && r.Meter == meter {
			sum = sum.Add(r.Quantity)
		}
	}
	return sum
}

// Reports returns the number of received reports.
func (s *Server) Reports() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.reports)
}
