// Package browser opens Chromium or Chrome, whichever is there.
package browser

import (
	"context"

	"github.com/chromedp/chromedp"
)

// Open returns a context of a tab of a browser of its own, which calls nobody by
// itself. cancel ends the browser.
func Open(ctx context.Context) (tab context.Context, cancel func()) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("disable-background-networking", true))
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	tab, closed := chromedp.NewContext(ctx)
	return tab, func() {
		closed()
		end()
	}
}
