package browser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Complaints collects the errors of a tab: console errors, exceptions, failed requests, and requests to
// origins other than the API and the expected ones.
type Complaints struct {
	api    string
	others []string // other origins that pages may open

	mu   sync.Mutex
	errs []error
}

// Listen collects the complaints of a tab that may request only the API and the other origins.
func Listen(ctx context.Context, api string, others ...string) (*Complaints, error) {
	c := &Complaints{api: api, others: others}
	return c, chromedp.Listen(ctx, c.hear)
}

func (c *Complaints) hear(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			c.add(fmt.Errorf("the browser logged %q for %s", e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError && len(e.Args) > 0 {
			c.add(fmt.Errorf("the page logged an error: %s", e.Args[0].Value))
		}
	case *runtime.EventExceptionThrown:
		c.add(fmt.Errorf("the page fails: %s", e.ExceptionDetails.Text))
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !c.expected(url) {
			c.add(fmt.Errorf("the page asks for %s", url))
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			c.add(fmt.Errorf("%s is answered with %d", e.Response.URL, e.Response.Status))
		}
	}
}

func (c *Complaints) expected(url string) bool {
	of := func(origin string) bool { return origin != "" && strings.HasPrefix(url, origin+"/") }
	return strings.HasPrefix(url, "data:") || url == "about:blank" || of(c.api) || slices.ContainsFunc(c.others, of)
}

func (c *Complaints) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// Forgive removes the complaints about a path of the API, and reports whether there were any. A test calls it
// after a refusal that the test expects.
func (c *Complaints) Forgive(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := len(c.errs)
	c.errs = slices.DeleteFunc(c.errs, func(err error) bool { return strings.Contains(err.Error(), c.api+path) })
	return len(c.errs) < all
}

// Err returns all complaints so far as one error, or nil.
func (c *Complaints) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}
