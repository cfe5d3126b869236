// Package expect judges what the API answers to the programs in dev.
package expect

import (
	"fmt"
	"slices"
)

// Answer is one of the generated client's.
type Answer interface {
	StatusCode() int
	GetBody() []byte
}

// Status is an error unless the answer has one of the statuses. what says whose
// answer it is.
func Status(what string, answer Answer, err error, statuses ...int) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !slices.Contains(statuses, answer.StatusCode()) {
		return fmt.Errorf("%s: status %d: %s", what, answer.StatusCode(), answer.GetBody())
	}
	return nil
}
