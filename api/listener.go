package api

import "net"

// socketBytes is the size of a connection's send buffer. The kernel's buffer for a slow client uses memory that
// no limit of this package covers. Without socketBytes, the buffer grows to megabytes on a fast network.
const socketBytes = 64 << 10

// listener sets a send buffer of socketBytes on the connections that it accepts.
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
