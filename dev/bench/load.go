package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// load sends prepared requests over a number of connections and returns the time until the last answer.
// Each connection sends the next request when the previous one is answered. Requests are encoded before the
// measurement, and only answers are parsed, because the client shares the machine's cores with the server.
func load(address string, connections int, requests [][]byte) (time.Duration, error) {
	pending := make(chan []byte, len(requests))
	for _, r := range requests {
		pending <- r
	}
	close(pending)
	conns := make([]net.Conn, connections)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return 0, fmt.Errorf("connect: %w", err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	var group sync.WaitGroup
	failures := make(chan error, connections)
	defer withoutCollecting()()
	start := time.Now()
	for _, conn := range conns {
		group.Go(func() { failures <- sendAll(conn, pending) })
	}
	group.Wait()
	took := time.Since(start)
	close(failures)
	for err := range failures {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

// withoutCollecting runs the garbage collector, and disables it until collect is called. Otherwise, the
// collector of the benchmark would take processor time from the measured server.
func withoutCollecting() (collect func()) {
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(percent) }
}

// sendAll sends the pending requests over one connection, one after the other.
func sendAll(conn net.Conn, pending <-chan []byte) error {
	reader := bufio.NewReader(conn)
	for request := range pending {
		if err := send(conn, reader, request); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request and waits for the answer. It returns an error unless the answer is a success.
func send(conn net.Conn, reader *bufio.Reader, request []byte) error {
	if _, err := conn.Write(request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the server answered %d: %s", response.StatusCode, body)
	}
	return nil
}

// rawRequest returns a POST request in its wire format.
func rawRequest(path, key string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, key, len(body))
	b.Write(body)
	return b.Bytes()
}
