// Package rules contains an example of each kind of code that mutate changes.
package rules

import "time"

type amount int

// span has fields with types of package time, so that spans.go uses these types without importing time.
type span struct {
	since time.Time
	grace time.Duration
}

func (a amount) Add(b amount) amount  { return a + b }
func (a amount) Sub(b amount) amount  { return a - b }
func (a amount) IsZero() bool         { return a == 0 }
func (a amount) IsNegative() bool     { return a < 0 }
func (a amount) Round(to int) amount  { return a % amount(to) }
func Units(a amount, unit int) amount { return a.Round(unit) }

func left(a, b amount, at, until time.Time, grace time.Duration, names []string) (amount, string) {
	if at.Before(until.Add(-grace)) && !at.IsZero() || until.Sub(at) >= grace {
		return Units(a.Sub(b), 3), "left" + names[0]
	}
	for i := 0; i < 3; i++ {
		a = a.Add(b)
	}
	return a, ""
}
