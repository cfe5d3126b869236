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

// Connections that the API has at once. One with an unfinished header takes some 40 KB,
// and one that waits for its next request 20 KB.
const (
	mostConnections = 1024
	mostOfPrefix    = 256 // of an address prefix that is not a trusted proxy
)

// connections bounds the connections of a listener. A new connection that finds a bound
// reached closes another one: of its address prefix, or of the prefix that has most; of the
// trusted proxies only if no other prefix has any. There it is the oldest that still waits
// for its first request, or else the oldest whose sender was never verified, or else the one
// that has been idle for longest. One is never closed while a request of a verified sender
// is under way on it.
type connections struct {
	net.Listener

	trusted []netip.Prefix
	closed  *prometheus.CounterVec
	log     *slog.Logger

	mu        sync.Mutex
	open      int
	prefixes  map[string]int // open, by prefix; "": of trusted proxies
	closeable []*connection  // the oldest first
	noRoom    api.SparseLog
}

// connection is one that the server has accepted.
type connection struct {
	net.Conn

	all    *connections
	prefix string // "": of a trusted proxy
	known  bool   // has had a request of a verified sender
	asks   bool   // a request is under way whose sender is not verified
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

// watch learns from the server and the API what becomes of connections.
func (c *connections) watch(server *http.Server) {
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if known, ours := conn.(*connection); ours && state == http.StateIdle {
			known.setState(api.ConnectionWaits) // it is the youngest again
		}
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if known, ours := conn.(*connection); ours {
			return api.WithConnection(ctx, known.setState)
		}
		return ctx
	}
}

// Accept returns the next connection for which there is room.
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

// add reports whether there is room, or was made.
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

// largestPrefix returns the prefix that has most connections, of those with one that may be
// closed; that of proxies if there is none.
func (c *connections) largestPrefix() (largest string) {
	most := 0
	for _, conn := range c.closeable {
		if open := c.prefixes[conn.prefix]; conn.prefix != "" && open > most {
			largest, most = conn.prefix, open
		}
	}
	return largest
}

// closeOldest closes a connection of a prefix, and reports whether there was one that may
// be closed.
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
			_ = conn.Conn.Close() // the server learns of it as it reads
			return true
		}
	}
	return false
}

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

// withdraw takes a connection from those that may be closed.
func (c *connections) withdraw(conn *connection) {
	if place := slices.Index(c.closeable, conn); place >= 0 {
		c.closeable = slices.Delete(c.closeable, place, place+1)
	}
}

const ranks = 3

// rank is lower for a connection that is closed earlier.
func (conn *connection) rank() int {
	switch {
	case conn.known:
		return 2
	case conn.asks:
		return 1
	}
	return 0
}

// setState makes a connection the youngest of those that may be closed, unless the sender
// of its request is verified: then it may not be closed.
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

// Close closes the connection, and makes room.
func (conn *connection) Close() error {
	conn.all.mu.Lock()
	conn.all.remove(conn)
	conn.all.mu.Unlock()
	return conn.Conn.Close()
}
