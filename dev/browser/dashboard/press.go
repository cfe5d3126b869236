package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
)

// These steps find elements by their labels only, as a user does, and do not depend on the structure of the
// page.

// act is a step of a walk.
type act func(context.Context) error

const stepTimeout = 20 * time.Minute // for one step, on a busy machine

// do runs steps in order until one fails.
func do(ctx context.Context, acts ...act) error {
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// labelled is a script that returns the visible element of the given kinds with a label, within the open
// dialog if there is one. A prefix of the label is enough, because a state may follow the label.
const labelled = `(label, kinds) => {
	const within = [...document.querySelectorAll('[role="dialog"]')].at(-1) ?? document;
	const label_of = (e) => (e.getAttribute("aria-label") ?? e.labels?.[0]?.innerText ?? e.innerText).trim();
	const shown = [...within.querySelectorAll(kinds)].filter((e) => e.checkVisibility() && !e.disabled);
	return shown.find((e) => label_of(e) === label) ?? shown.find((e) => label_of(e).startsWith(label));
}`

// on waits for the element with the label and calls a function with it.
func on(what, label, kinds, then string) act {
	return func(ctx context.Context) error {
		script := fmt.Sprintf(`(() => { const e = (%s)(%q, %q); if (!e) return false; (%s)(e); return true; })()`, labelled, label, kinds, then)
		if _, err := chromedp.Run(ctx, chromedp.Poll[bool](script, chromedp.WithPollingTimeout(stepTimeout))); err != nil {
			return fmt.Errorf("%s %q: %w", what, label, err)
		}
		return nil
	}
}

// press presses a button, a link or an option.
func press(label string) act {
	return on("press", label, `button, a, input[type="checkbox"], input[type="radio"], [role="menuitem"], [role="option"]`, `(e) => e.click()`)
}

// fill replaces the text of a field.
func fill(label, text string) act {
	focus := on("fill", label, "input, textarea", `(e) => { e.focus(); e.select(); }`)
	return func(ctx context.Context) error {
		if err := focus(ctx); err != nil {
			return err
		}
		return chromedp.Do(ctx, chromedp.KeyEvent(text))
	}
}

// choose selects the option of a list by its text.
func choose(label, option string) act {
	take := fmt.Sprintf(`(e) => {
		e.selectedIndex = [...e.options].findIndex((o) => o.text === %q);
		e.dispatchEvent(new Event("change", {bubbles: true}));
	}`, option)
	return on("choose of", label, "select", take)
}

// set sets a field with a value that differs from the typed text, such as a date.
func set(label, value string) act {
	give := fmt.Sprintf(`(e) => {
		Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(e, %q);
		e.dispatchEvent(new Event("input", {bubbles: true}));
	}`, value)
	return on("set", label, "input", give)
}

// kept closes the dialog of a secret that is shown once, without copying the secret. Therefore "I have copied it"
// does not close the dialog but asks for a confirmation, which the last button gives.
func kept(ctx context.Context) error {
	return do(ctx, press("I have copied it"), see("cannot be shown again"), press("Close without copying"), miss("cannot be shown again"))
}

// see waits until the page contains a text.
func see(text string) act { return shown(text, true) }

// miss waits until the page no longer contains a text.
func miss(text string) act { return shown(text, false) }

func shown(text string, there bool) act {
	return func(ctx context.Context) error {
		script := fmt.Sprintf(`document.body.innerText.includes(%q) === %t`, text, there)
		if err := until(ctx, script); err != nil {
			return fmt.Errorf("see %q (%t): %w", text, there, err)
		}
		return nil
	}
}

// settled waits until the page has loaded all its content.
func settled(ctx context.Context) error {
	return until(ctx, `document.querySelector('[data-loading], [aria-busy="true"]') === null`)
}

// until waits until a script returns true. If the page is replaced meanwhile, it continues on the new page.
func until(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Poll[bool](script, chromedp.WithPollingTimeout(stepTimeout)))
		if err == nil || !strings.Contains(err.Error(), "Cannot find context") {
			return err
		}
	}
}

// refused returns a step that removes the complaint about a refused API request to a path. The previous step
// has caused the refusal.
func (w walk) refused(path string) act {
	return func(context.Context) error {
		w.heard.Forgive(path)
		return nil
	}
}

// changeBills returns a step that confirms a change of running bills, which the API asks for when it refuses the
// request to the path. The step looks at the question first. If a period was closed in the meantime, the API asks
// again, and the step confirms again.
func (w walk) changeBills(path string, look ...act) act {
	const question, button = "in running billing periods", "Change the bills"
	again := fmt.Sprintf(`(%s)(%q, "button")?.click()`, labelled, button)
	gone := fmt.Sprintf(`!document.body.innerText.includes(%q)`, question)
	return func(ctx context.Context) error {
		if err := do(ctx, slices.Concat([]act{see(question), w.refused(path)}, look, []act{press(button)})...); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		for {
			_, err := chromedp.Run(ctx, chromedp.Poll[bool](gone, chromedp.WithPollingTimeout(time.Second)))
			refused := w.heard.Forgive(path)
			if !errors.Is(err, chromedp.ErrPollingTimeout) {
				return err
			}
			if refused {
				if _, err := chromedp.Run(ctx, chromedp.Evaluate[any](again)); err != nil {
					return err
				}
			}
		}
	}
}

// arrive waits for an element of the page that a link or redirect leads to.
func arrive(part string) act {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		return chromedp.Do(ctx, chromedp.WaitVisible(part))
	}
}

// read stores the text of an element.
func read(part string, text *string) act {
	return func(ctx context.Context) (err error) {
		said, err := chromedp.Run(ctx, chromedp.Text(part))
		*text = strings.TrimSpace(said)
		return err
	}
}

// onPhone makes the window as narrow as a phone.
func onPhone(ctx context.Context) error {
	phone := windows[len(windows)-1]
	return chromedp.Do(ctx, chromedp.EmulateViewport(phone.width, phone.height))
}

// to opens a screen and waits until its content is loaded.
func (w walk) to(path string) act {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(w.url+path)); err != nil {
			return fmt.Errorf("go to %s: %w", path, err)
		}
		const there = `document.querySelector("h1") !== null && document.querySelector("[data-loading]") === null`
		if err := until(ctx, there); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		return nil
	}
}

// at returns the path and query of the current URL.
func (w walk) at(ctx context.Context) (string, error) {
	location, err := chromedp.Run(ctx, chromedp.Location())
	return strings.TrimPrefix(location, w.url), err
}
