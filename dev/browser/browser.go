// Package browser opens Chromium or Chrome.
package browser

import (
	"context"

	"github.com/chromedp/chromedp"
)

// Open returns the context of a tab in a new browser without background network requests. cancel closes the
// browser.
func Open(ctx context.Context) (tab context.Context, cancel func()) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-background-networking", true))
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	tab, closed := chromedp.NewContext(ctx)
	return tab, func() {
		closed()
		end()
	}
}
