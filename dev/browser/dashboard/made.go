package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/network"
)

// made collects the calls of pages to the API, except GET requests.
type made struct {
	api string

	mu    sync.Mutex
	calls map[string]bool
}

func (m *made) hear(event any) {
	sent, is := event.(*network.EventRequestWillBeSent)
	if !is || sent.Request.Method == http.MethodGet || !strings.HasPrefix(sent.Request.URL, m.api+"/") {
		return
	}
	where, err := url.Parse(sent.Request.URL)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[sent.Request.Method+" "+where.EscapedPath()] = true
}

// appendTo appends the calls to a file, one per line.
func (m *made) appendTo(path string) error {
	if path == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, strings.Join(slices.Sorted(maps.Keys(m.calls)), "\n")) // in one write, because other processes also append
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
