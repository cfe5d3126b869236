// Command dashboard tests the dashboard of the API at URL in a browser, as the member ODOMETER_EMAIL with
// ODOMETER_PASSWORD. It signs in, opens every screen in both color schemes and in a desktop and a phone window,
// and signs out. The exit status is 1 if the browser reports an error, an element cannot be reached, or a
// screen is wider than the window. It is also 1 if axe-core, which the file AXE contains, finds a violation.
//
// These variables change the walk:
//   - PICTURES: a folder for a screenshot of each screen.
//   - ONLY: a comma-separated list of subjects to walk through, such as billing,customers.
//   - RECEIVER: the URL of a receiver of statements.
//   - ISSUER, CLIENT and SECRET: an OIDC issuer, and the client ID and secret of this API there.
//   - MADE: a file to which the calls of the pages are appended, one per line, except GET requests.
//   - STRIPE: the URL of the fake of Stripe. The walk then does the steps of a new user, and those of an
//     operator with failed syncs and a wrong invoice. STRIPE needs CLOCK.
//   - CLOCK: a URL that advances the clock of the API, the worker and the fake to the instant in a request's body.
//   - CREDENTIALS: the file that make up writes. The walk then does the steps of a new user on that system.
//   - MEASURE: if it is set, the walk fails if the overview or a large chart is too slow. Otherwise it only
//     prints the durations, which depend on the load of the machine.
//
// It needs Chromium or Chrome.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/odometer-metering/odometer/dev/browser"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Hour) // like the time limit of go test for a package
	defer cancel()
	w := walk{
		email: os.Getenv("ODOMETER_EMAIL"), password: os.Getenv("ODOMETER_PASSWORD"), pictures: os.Getenv("PICTURES"), only: os.Getenv("ONLY"),
		receiver: os.Getenv("RECEIVER"), stripe: os.Getenv("STRIPE"), issuer: os.Getenv("ISSUER"), client: os.Getenv("CLIENT"), secret: os.Getenv("SECRET"),
		clock: os.Getenv("CLOCK"), measure: os.Getenv("MEASURE") != "",
	}
	if err := w.begin(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// begin reads the settings and starts the walk.
func (w walk) begin(ctx context.Context, args []string) error {
	file := os.Getenv("CREDENTIALS")
	switch {
	case file != "" && len(args) == 1:
		known, err := readCredentials(file)
		if err != nil {
			return err
		}
		w.email, w.password, w.stripe, w.inUse = known.Email, known.Password, known.Stripe, true
		return w.run(ctx, known.URL, args[0])
	case file == "" && len(args) == 2 && w.email != "" && w.password != "":
		return w.run(ctx, args[0], args[1])
	}
	return errors.New("usage: ODOMETER_EMAIL=… ODOMETER_PASSWORD=… dashboard URL AXE, or CREDENTIALS=… dashboard AXE")
}

// credentials contains the fields of the file that make up writes.
type credentials struct {
	URL      string `json:"dashboard_url"`
	Email    string `json:"email"`
	Password string `json:"password"`
	Stripe   string `json:"stripe_fake_url"`
}

func readCredentials(file string) (known credentials, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return known, err
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return known, fmt.Errorf("read %s: %w", file, err)
	}
	return known, nil
}

type walk struct {
	url, email, password, pictures string
	only                           string // names of subjects; "": all
	receiver                       string // URL of a receiver of statements
	stripe                         string // URL of the fake; if set, the walk does the steps of a new user only
	clock                          string // URL that advances the system's clock
	measure                        bool   // whether slow screens fail the walk
	inUse                          bool   // the tenant already has customers
	issuer, client, secret         string // the OIDC issuer, and the API's client ID and secret there
	axe                            string // source of axe-core
	heard                          *browser.Complaints
}

// screen is a page of the dashboard; shows selects an element that is present when the page is loaded.
type screen struct{ name, path, shows string }

// Each screen is tested in both schemes and in both windows.
var (
	schemes = []string{"light", "dark"}
	windows = []struct{ width, height int64 }{{1280, 800}, {360, 740}}
)

func (w walk) run(ctx context.Context, url, axe string) error {
	source, err := os.ReadFile(axe)
	if err != nil {
		return err
	}
	w.url, w.axe = url, string(source)
	ctx, cancel := browser.Open(ctx)
	defer cancel()
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("open the browser: %w", err)
	}
	if w.heard, err = browser.Listen(ctx, url, w.issuer); err != nil {
		return err
	}
	if err := chromedp.Listen(ctx, acceptLeaving(ctx)); err != nil {
		return err
	}
	made := made{api: url, calls: make(map[string]bool)}
	if err := chromedp.Listen(ctx, made.hear); err != nil {
		return err
	}
	err = w.visit(ctx)
	if err != nil {
		err = errors.Join(err, w.picture(ctx, "failed"))
	}
	err = errors.Join(err, made.appendTo(os.Getenv("MADE")))
	return errors.Join(err, w.heard.Err()) // errors of the browser explain why a screen did not open
}

// acceptLeaving accepts the browser's dialog about leaving a page with unsaved text.
func acceptLeaving(ctx context.Context) func(any) {
	return func(event any) {
		if _, asks := event.(*page.EventJavascriptDialogOpening); asks {
			go func() { // after a failure the page stays open, which fails the walk
				_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
			}()
		}
	}
}

func (w walk) visit(ctx context.Context) error {
	if err := chromedp.Do(ctx, chromedp.Navigate(w.url+"/sign-in")); err != nil {
		return err
	}
	if err := w.judgeScreen(ctx, screen{"sign-in", "/sign-in", `button[type="submit"]`}); err != nil {
		return err
	}
	if err := w.signIn(ctx); err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	if err := w.paints(ctx); err != nil {
		return err
	}
	if w.stripe != "" {
		mark := mark()
		if err := w.newcomer(ctx, mark); err != nil {
			return fmt.Errorf("newcomer: %w", err)
		}
		if !w.inUse { // invoices are not held in a tenant that is in use
			if err := w.outages(ctx, mark); err != nil {
				return fmt.Errorf("outages: %w", err)
			}
			if err := w.disputes(ctx, mark); err != nil {
				return fmt.Errorf("disputes: %w", err)
			}
		}
		return w.signOut(ctx)
	}
	for _, subject := range []struct {
		name string
		walk func(context.Context) error
	}{
		{"meters", w.meters},
		{"events", w.events},
		{"plans", w.plans},
		{"quotas", w.quotas},
		{"alerts", w.alerts},
		{"billing", w.billing},
		{"customers", w.customers},
		{"developers", w.developers},
		{"start", w.start},
		{"forms", w.forms},
		{"settings", w.settings},
		{"others", w.testOtherMembers},
	} {
		if w.only != "" && !slices.Contains(strings.Split(w.only, ","), subject.name) {
			continue
		}
		if err := subject.walk(ctx); err != nil {
			return fmt.Errorf("%s: %w", subject.name, err)
		}
	}
	return w.signOut(ctx)
}

func (w walk) signIn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return chromedp.Do(ctx,
		chromedp.EmulateViewport(1280, 800),
		chromedp.Navigate(w.url+"/sign-in"),
		chromedp.SendKeys(`input[name="email"]`, w.email),
		chromedp.SendKeys(`input[name="password"]`, w.password),
		chromedp.Click(`button[type="submit"]`),
		chromedp.WaitVisible(navigation),
	)
}

// soonest is the maximum time until the first paint of the overview, in the fastest of five attempts. The
// fastest attempt excludes other load of the machine.
const soonest = time.Second

// paints prints the time until the first paint of the overview. If w.measure is set, it returns an error if the
// time is too long.
func (w walk) paints(ctx context.Context) error {
	const first = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null`
	var took []time.Duration
	for range 5 {
		if err := w.to("/overview")(ctx); err != nil {
			return err
		}
		ms, err := chromedp.Run(ctx, chromedp.Poll[float64](first, chromedp.WithPollingTimeout(stepTimeout)))
		if err != nil {
			return fmt.Errorf("ask when the overview was painted: %w", err)
		}
		took = append(took, time.Duration(ms*float64(time.Millisecond)))
	}
	slices.Sort(took)
	fmt.Printf("first paint of the overview: %s\n", took)
	if w.measure && took[0] > soonest {
		return fmt.Errorf("the overview is painted first after %s", took)
	}
	return nil
}

func (w walk) signOut(ctx context.Context) error {
	if err := do(ctx, w.to("/customers"), w.menu); err != nil {
		return fmt.Errorf("open the menu: %w", err)
	}
	if err := w.judge(ctx, "menu"); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Click(`//button[contains(., "Sign out")]`), chromedp.WaitVisible(`input[name="password"]`)); err != nil {
		return fmt.Errorf("sign out: %w", err)
	}
	return nil
}

// menu opens the menu of the signed-in member.
func (w walk) menu(ctx context.Context) error {
	if err := chromedp.Do(ctx, chromedp.Click(`button[aria-haspopup="menu"]`), chromedp.WaitVisible(`[role="menu"]`)); err != nil {
		return err
	}
	return until(ctx, `document.activeElement.closest('[role="menu"]') !== null`)
}

// judgeScreen opens a screen once in each color scheme, and judges it in both windows. The window in which it
// opens the screen alternates.
func (w walk) judgeScreen(ctx context.Context, s screen) error {
	for i, scheme := range schemes {
		choose := fmt.Sprintf("localStorage.setItem('scheme', %q)", scheme)
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](choose)); err != nil {
			return fmt.Errorf("choose a scheme: %w", err)
		}
		for j := range windows {
			window := windows[(i+j)%len(windows)]
			if err := chromedp.Do(ctx, chromedp.EmulateViewport(window.width, window.height)); err != nil {
				return err
			}
			if j == 0 {
				if err := w.openStill(ctx, s); err != nil {
					return fmt.Errorf("open %s at %d: %w", s.name, window.width, err)
				}
			}
			if err := w.judge(ctx, fmt.Sprintf("%s-%s-%d", s.name, scheme, window.width)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostShift is the maximum layout shift of a screen while it loads, as Chromium measures it.
const mostShift = 0.02

// shifts is a script that returns the layout shift since the screen was opened, and the elements of the two
// largest shifts.
const shifts = `new Promise((tell) => {
	const moved = [];
	new PerformanceObserver((list) => moved.push(...list.getEntries())).observe({type: "layout-shift", buffered: true});
	requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
		const own = moved.filter((one) => !one.hadRecentInput).sort((a, b) => b.value - a.value);
		const named = ({node}) => node?.nodeType === 1 ? node.tagName + "." + node.className : node?.parentElement?.tagName + ": " + node?.textContent?.slice(0, 40);
		tell({sum: own.reduce((sum, one) => sum + one.value, 0), of: own.slice(0, 2).flatMap((one) => one.sources.map(named))});
	}, 50)));
})`

// openStill opens a screen. It returns an error if the layout shifts too much in each of three attempts,
// because live content can change during one attempt.
func (w walk) openStill(ctx context.Context, s screen) (err error) {
	for range 3 {
		if err = w.open(ctx, s); err != nil {
			return err
		}
		if err = w.still(ctx); err == nil {
			return nil
		}
	}
	return err
}

// still returns an error if the layout has shifted by more than mostShift.
func (w walk) still(ctx context.Context) error {
	moved, err := chromedp.Run(ctx, chromedp.Evaluate[struct {
		Sum float64
		Of  []string
	}](shifts, chromedp.EvalAwaitPromise))
	if err != nil {
		return fmt.Errorf("ask what has moved: %w", err)
	}
	if moved.Sum > mostShift {
		return fmt.Errorf("it moves by %.3f while it is read: %s", moved.Sum, strings.Join(moved.Of, ", "))
	}
	return nil
}

// violations is a script that returns the violations that axe-core finds, and whether the page is wider
// than the window.
const violations = `axe.run(document, {resultTypes: ["violations"]}).then(({violations}) => {
	const found = violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.map((n) => n.target.join(" ")).join(", "));
	if (document.documentElement.scrollWidth > innerWidth) found.push("it is wider than the window");
	return found;
})`

func (w walk) open(ctx context.Context, s screen) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	blank := chromedp.Navigate("about:blank") // a URL that differs only behind # would not load the page again
	return chromedp.Do(ctx, blank, chromedp.Navigate(w.url+s.path), chromedp.WaitVisible(s.shows), chromedp.WaitNotPresent("[data-loading]"))
}

// judged returns a step that judges the current screen, such as a dialog.
func (w walk) judged(name string) act {
	return func(ctx context.Context) error { return w.judge(ctx, name) }
}

func (w walk) judge(ctx context.Context, name string) error {
	if err := w.picture(ctx, name); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](w.axe+";0")); err != nil {
		return fmt.Errorf("load axe-core into %s: %w", name, err)
	}
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](violations, chromedp.EvalAwaitPromise))
	if err != nil {
		return fmt.Errorf("ask axe-core about %s: %w", name, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%s: %s", name, strings.Join(found, "; "))
	}
	return nil
}

// picture saves a screenshot if PICTURES is set.
func (w walk) picture(ctx context.Context, name string) error {
	if w.pictures == "" {
		return nil
	}
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return fmt.Errorf("take a picture of %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(w.pictures, name+".png"), shot, 0o600)
}
