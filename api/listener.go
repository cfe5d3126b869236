package api

import "net"

// socketBytes is the size of a connection's send buffer. What the kernel holds of an answer
// that a client does not take is memory too, which no share bounds: on a fast network it
// would be megabytes.
const socketBytes = 64 << 10

// listener gives the connections that it accepts small send buffers.
type listener struct{ net.Listener }

// Listener returns a listener whose clients have to take their answers.
func Listener(of net.Listener) net.Listener { return listener{of} }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, is := conn.(*net.TCPConn); is {
		_ = tcp.SetWriteBuffer(socketBytes) // fails where the connection has ended already
	}
	return conn, err
}
