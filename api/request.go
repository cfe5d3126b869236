package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// exchange is a request and the data that handlers and middleware add to it.
type exchange struct {
	id        string
	errorDocs string
	request   *http.Request
	writer    *recorder
	principal Principal
	body      *body
	limit     int // value of X-RateLimit-Limit; 0: not set
	remaining int
	ends      []func()
	hold      func(bytes int64) bool      // reserves memory of the tenant for the response; nil: public request
	held      int64                       // reserved bytes
	reads     bool                        // the request changes nothing, so its response may be refused
	yield     func(context.Context) error // lets other heavy requests read; nil: the request is not heavy
	endTurn   func()                      // lets the next heavy request start; nil: the request is not heavy
	err       error                       // for the log
}

// atEnd registers a function to call after the response.
func (x *exchange) atEnd(end func()) { x.ends = append(x.ends, end) }

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// ConnectionState is the progress of the request on a connection.
type ConnectionState int

// The states of a connection.
const (
	ConnectionWaits    ConnectionState = iota // for the next request
	ConnectionAsks                            // a request is in progress, its sender is not authenticated
	ConnectionVerified                        // a request of an authenticated sender is in progress
)

type connectionKey struct{}

// WithConnection returns a context with a function that the API calls on every change of the connection's
// state.
func WithConnection(ctx context.Context, set func(ConnectionState)) context.Context {
	return context.WithValue(ctx, connectionKey{}, set)
}

func (x *exchange) setConnection(state ConnectionState) {
	if set, watched := x.request.Context().Value(connectionKey{}).(func(ConnectionState)); watched {
		set(state)
	}
}

// principalOf returns the authenticated caller of the request. It is the zero Principal if no caller is
// authenticated.
func principalOf(ctx context.Context) Principal { return exchangeOf(ctx).principal }

// ServeHTTP assigns a request id, calls the handler of the route, and logs and counts the response.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &recorder{ResponseWriter: w, connection: http.NewResponseController(w), time: cmp.Or(s.AnswerTime, answerTime)}
	x := &exchange{id: requestID(r), errorDocs: s.ErrorDocsBase, writer: out}
	address := s.failures.addressOf(r)
	ctx := audit.From(context.WithValue(r.Context(), exchangeKey{}, x), audit.Origin{Address: address, RequestID: x.id})
	r = r.WithContext(pg.WithYield(pg.WithRoom(ctx, x.holdPage), x.yieldTurn))
	x.request = r
	x.setConnection(ConnectionAsks)
	x.atEnd(func() { x.setConnection(ConnectionWaits) })
	out.refuse = func() { s.refuse(out, r, errUnread) }
	out.admits, out.made = x.admits, x.answerMade
	x.body = s.bodies.receive(r, out, address)
	x.atEnd(x.body.giveBack)
	out.Header().Set("X-Request-Id", x.id)
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
	began := time.Now()
	defer func() {
		failure := recover()
		if failure != nil {
			s.answerPanic(out, r, failure)
		}
		out.send()
		for _, end := range slices.Backward(x.ends) {
			end()
		}
		s.auditForbidden(x, out.status)
		s.recordExchange(x, out, began)
		if failure == nil {
			x.body.drain(r)
		}
		if failure != nil && (out.began || aborted(failure)) {
			panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
		}
	}()
	handler, pattern := s.mux.Handler(r)
	if pattern == "" {
		s.answerUnrouted(out, r, handler)
		return
	}
	s.mux.ServeHTTP(out, r)
}

func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); validRequestID(id) {
		return id
	}
	return rand.Text()
}

const maxRequestID = 128

func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && strings.Trim(id, base62+"._-") == ""
}

// aborted reports whether a handler has aborted its response with http.ErrAbortHandler.
func aborted(failure any) bool {
	err, ok := failure.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

// answerPanic responds with an internal error after the handler has panicked, unless the response has already begun.
func (s *server) answerPanic(out *recorder, r *http.Request, failure any) {
	x := exchangeOf(r.Context())
	if aborted(failure) {
		return
	}
	err := fmt.Errorf("panic: %v\n%s", failure, debug.Stack())
	if !out.began {
		s.refuse(out, r, err)
	}
	out.status = http.StatusInternalServerError // for the log, even if another status was sent
	x.err = err
}

// refuse writes an error as a Problem Details response, without huma.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	x.err = err
	p := problemOf(err)
	x.completeProblem(p, w.Header().Set)
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	if err := json.NewEncoder(w).Encode(p); err != nil {
		x.err = errors.Join(x.err, err)
	}
}

// answerUnrouted answers a request without a route. The router's own response supplies only the Allow header, which
// distinguishes a wrong method from an unknown path. A browser gets the dashboard's page for an unknown path.
func (s *server) answerUnrouted(w http.ResponseWriter, r *http.Request, mux http.Handler) {
	silent := &silentWriter{header: make(http.Header)}
	mux.ServeHTTP(silent, r)
	if allow := silent.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		s.refuse(w, r, metering.Errorf(codeMethod, "this path does not support this method"))
		return
	}
	if isScreen(r) {
		s.screen(w, r)
		return
	}
	s.refuse(w, r, metering.Errorf(metering.CodeNotFound, "there is no such path"))
}

type silentWriter struct{ header http.Header }

func (w *silentWriter) Header() http.Header         { return w.header }
func (w *silentWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *silentWriter) WriteHeader(int)             {}

// recordExchange logs and counts an exchange. It logs the route instead of the path, because a path can contain a
// customer's name.
func (s *server) recordExchange(x *exchange, out *recorder, began time.Time) {
	took := time.Since(began)
	route := x.request.Pattern
	if route == "" {
		route = "none"
	}
	status := out.status
	if status == 0 {
		status = http.StatusOK
	}
	s.metrics.observe(route, status, took)
	level := levelOf(status, x.err)
	if x.request.Context().Err() != nil {
		level = slog.LevelDebug // the client went away
	} else if status == http.StatusServiceUnavailable {
		s.overloads.count(x.principal.Tenant.ID, x.err, began.Add(took))
	}
	if !s.Log.Enabled(x.request.Context(), level) {
		return
	}
	attributes := []slog.Attr{
		slog.String("request_id", x.id), slog.String("route", route), slog.Int("status", status),
		slog.Duration("took", took), slog.String("tenant", x.principal.Tenant.ID.String()),
		slog.String("actor", string(x.principal.Actor)),
	}
	if x.err != nil {
		attributes = append(attributes, slog.String("error", x.err.Error()))
	}
	s.Log.LogAttrs(x.request.Context(), level, "request", attributes...)
}

// expected lists the errors with a status of 503 that a client can cause with each of its requests. The metrics count
// them, and overloads logs some of them.
var expected = []metering.Code{metering.CodeOverloaded, metering.CodeBackfilling}

// levelOf returns the log level of a response. Client errors and expected errors have the level debug.
func levelOf(status int, err error) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case status > http.StatusInternalServerError && !slices.Contains(expected, metering.CodeOf(err)):
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// answerTime is the time in which a client must accept a part of a response. It is a variable because tests use a
// longer time, so that they do not fail on a busy machine.
var answerTime = 30 * time.Second

// Sizes of the parts of a response, in bytes.
const (
	partBytes    = 256 << 10 // a client must accept one part within answerTime
	quotedAtOnce = 32 << 10
)

// recorder writes a response and records its status. It writes decimals as strings if the client requested this, and
// replaces a response that exceeds the tenant's memory budget with an error. It aborts the response if the client
// does not accept a part in time.
type recorder struct {
	http.ResponseWriter

	connection *http.ResponseController
	time       time.Duration
	decimals   map[string]*decimalPlan // by status, if the client asked for decimals as strings
	quoter     *decimalQuoter          // of this response; nil: the bytes stay unchanged
	streams    bool
	admits     func(bytes int) bool // whether the response may be held in memory; nil: always
	made       func()               // called before the first bytes, unless the response is a stream; may be nil
	refuse     func()               // writes an error instead of a response that admits rejects
	refused    bool                 // further writes are dropped
	status     int
	began      bool
	sent       bool // the status was sent to the client
	wrote      bool
}

func (w *recorder) WriteHeader(status int) {
	if w.began {
		return // a response that failed halfway keeps its first status
	}
	w.status, w.began = status, true
	if w.streams {
		w.send()
	}
}

// send sends the status. Unless the response is a stream, WriteHeader only stores the status, because Write
// can still replace a response that is too large with an error.
func (w *recorder) send() {
	if w.sent || !w.began {
		return
	}
	w.sent = true
	w.restartWriteDeadline()
	w.ResponseWriter.WriteHeader(w.status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	if !w.wrote && !w.streams && w.made != nil {
		w.made()
	}
	if !w.wrote && !w.streams && w.admits != nil && !w.admits(len(b)) {
		w.admits, w.began = nil, false
		w.refuse()
		w.refused = true
		return len(b), nil
	}
	if !w.began {
		w.WriteHeader(http.StatusOK)
	}
	w.send()
	if plan := w.decimals[strconv.Itoa(w.status)]; !w.wrote && plan != nil && strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		w.quoter = &decimalQuoter{plan: plan}
	}
	w.wrote = true
	for part := range slices.Chunk(b, partBytes) {
		w.restartWriteDeadline()
		if err := w.writePart(part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (w *recorder) writePart(part []byte) error {
	if w.quoter == nil {
		_, err := w.ResponseWriter.Write(part)
		return err
	}
	for piece := range slices.Chunk(part, quotedAtOnce) {
		if _, err := w.ResponseWriter.Write(w.quoter.quote(piece)); err != nil {
			return err
		}
	}
	return nil
}

// flush sends all written bytes to the client.
func (w *recorder) flush() error {
	if err := w.connection.Flush(); !errors.Is(err, http.ErrNotSupported) { // tests have no connection
		return err
	}
	return nil
}

// restartWriteDeadline restarts the time in which the client must accept the next part of the response.
func (w *recorder) restartWriteDeadline() {
	_ = w.connection.SetWriteDeadline(time.Now().Add(w.time)) // tests have no connection
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
