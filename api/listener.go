package api

import "net"

// socketBytes is the size of a connection's send buffer. The kernel's buffer for a slow client is memory that
// no share bounds. Without a limit, it grows to megabytes on a fast network.
const socketBytes = 64 << 10

// listener gives the connections that it accepts small send buffers.
type listener struct{ net.Listener }

// Listener returns a listener that accepts connections with small send buffers. A write to a slow client
// therefore blocks early.
func Listener(of net.Listener) net.Listener { return listener{of} }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, is := conn.(*net.TCPConn); is {
		_ = tcp.SetWriteBuffer(socketBytes) // fails if the connection has already ended
	}
	return conn, err
}
