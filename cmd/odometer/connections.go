package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/odometer-metering/odometer/api"
)

// Limits on the open connections of the API. A connection with an unfinished header takes about 40 KB, and
// an idle one 20 KB.
const (
	mostConnections = 1024
	mostOfPrefix    = 256 // of an address prefix that is not a trusted proxy
)

// connections limits the open connections of a listener. At the limit of an address prefix, a new connection
// replaces a connection of that prefix. At the limit of all connections, it replaces a connection of the
// prefix with the most connections. Connections of trusted proxies are closed only if no other prefix has a
// closeable connection.
//
// Within a prefix, connections are closed in this order. Within a group, the connection with the oldest state
// change is closed first:
//  1. no verified sender so far, and no request in progress
//  2. no verified sender so far, and a request in progress
//  3. a verified sender in a previous request
//
// A connection is never closed during a request of a verified sender.
type connections struct {
	net.Listener

	trusted []netip.Prefix
	closed  *prometheus.CounterVec
	log     *slog.Logger

	mu        sync.Mutex
	open      int
	prefixes  map[string]int // number of open connections by prefix; "": trusted proxies
	closeable []*connection  // the oldest first
	noRoom    api.SparseLog
}

// connection is a connection that the server has accepted.
type connection struct {
	net.Conn

	all    *connections
	prefix string // "": of a trusted proxy
	known  bool   // the current or a previous request had a verified sender
	asks   bool   // a request with an unverified sender is in progress
	gone   bool
}

func newConnections(listener net.Listener, trusted []netip.Prefix, registry *prometheus.Registry, log *slog.Logger) *connections {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "odometer_connections_closed_total",
		Help: "Connections that the API closed or refused because a bound on open connections was reached, by bound: all (every connection) or prefix (one address prefix).",
	}, []string{"bound"})
	registry.MustRegister(closed)
	return &connections{Listener: listener, trusted: trusted, closed: closed, log: log, prefixes: make(map[string]int)}
}

// watch registers callbacks with the server. The callbacks update the state of a connection when a request
// begins, is authenticated or ends.
func (c *connections) watch(server *http.Server) {
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if known, ours := conn.(*connection); ours && state == http.StateIdle {
			known.setState(api.ConnectionWaits) // moves the connection to the end of closeable
		}
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if known, ours := conn.(*connection); ours {
			return api.WithConnection(ctx, known.setState)
		}
		return ctx
	}
}

// Accept returns the next connection within the limits.
func (c *connections) Accept() (net.Conn, error) {
	for {
		accepted, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &connection{Conn: accepted, all: c, prefix: c.prefixOf(accepted)}
		if c.add(conn) {
			return conn, nil
		}
		_ = accepted.Close()
	}
}

// prefixOf returns the address prefix of a connection, or "" for a trusted proxy.
func (c *connections) prefixOf(conn net.Conn) string {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	address := peer.Addr().Unmap()
	if slices.ContainsFunc(c.trusted, func(network netip.Prefix) bool { return network.Contains(address) }) {
		return ""
	}
	return api.AddressPrefix(address)
}

// add adds conn and reports whether it is within the limits. At a limit, it closes another connection first.
func (c *connections) add(conn *connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.prefix != "" && c.prefixes[conn.prefix] >= mostOfPrefix && !c.closeOldest("prefix", conn.prefix) {
		return false
	}
	if c.open >= mostConnections && !c.closeOldest("all", c.largestPrefix()) {
		return false
	}
	c.open++
	c.prefixes[conn.prefix]++
	c.closeable = append(c.closeable, conn)
	return true
}

// largestPrefix returns the prefix with the most connections among the prefixes with a closeable connection.
// It returns "", the prefix of trusted proxies, if there is none.
func (c *connections) largestPrefix() (largest string) {
	most := 0
	for _, conn := range c.closeable {
		if open := c.prefixes[conn.prefix]; conn.prefix != "" && open > most {
			largest, most = conn.prefix, open
		}
	}
	return largest
}

// closeOldest closes a connection of the prefix: the oldest one with the lowest rank. It reports whether the
// prefix had a closeable connection. In both cases, it counts and logs that a bound is reached.
func (c *connections) closeOldest(bound, prefix string) bool {
	c.closed.WithLabelValues(bound).Inc()
	if n := c.noRoom.Add(time.Now()); n > 0 {
		c.log.Warn("the API closes connections because a bound on open connections is reached", "bound", bound, "connections", n)
	}
	for rank := range ranks {
		oldest := slices.IndexFunc(c.closeable, func(conn *connection) bool {
			return conn.rank() == rank && conn.prefix == prefix
		})
		if oldest >= 0 {
			conn := c.closeable[oldest]
			c.remove(conn)
			_ = conn.Conn.Close() // the server notices at its next read
			return true
		}
	}
	return false
}

// remove no longer counts a connection as open. Repeating it changes nothing.
func (c *connections) remove(conn *connection) {
	if conn.gone {
		return
	}
	conn.gone = true
	c.open--
	if c.prefixes[conn.prefix]--; c.prefixes[conn.prefix] == 0 {
		delete(c.prefixes, conn.prefix)
	}
	c.withdraw(conn)
}

// withdraw removes a connection from closeable.
func (c *connections) withdraw(conn *connection) {
	if place := slices.Index(c.closeable, conn); place >= 0 {
		c.closeable = slices.Delete(c.closeable, place, place+1)
	}
}

const ranks = 3

// rank returns the order in which connections are closed; the lowest is closed first.
func (conn *connection) rank() int {
	switch {
	case conn.known:
		return 2
	case conn.asks:
		return 1
	}
	return 0
}

// setState moves a connection to the end of closeable. If state is api.ConnectionVerified, or the connection is closed,
// it only removes the connection from closeable.
func (conn *connection) setState(state api.ConnectionState) {
	c := conn.all
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdraw(conn)
	conn.asks = state == api.ConnectionAsks
	conn.known = conn.known || state == api.ConnectionVerified
	if state != api.ConnectionVerified && !conn.gone {
		c.closeable = append(c.closeable, conn)
	}
}

// Close closes the connection and no longer counts it as open.
func (conn *connection) Close() error {
	conn.all.mu.Lock()
	conn.all.remove(conn)
	conn.all.mu.Unlock()
	return conn.Conn.Close()
}
