// Package expect checks the API's answers to the programs in dev.
package expect

import (
	"fmt"
	"slices"
)

// Answer is a response of the generated client.
type Answer interface {
	StatusCode() int
	GetBody() []byte
}

// Status returns an error unless the answer has one of the statuses. The text describes the request in the
// error.
func Status(request string, answer Answer, err error, statuses ...int) error {
	if err != nil {
		return fmt.Errorf("%s: %w", request, err)
	}
	if !slices.Contains(statuses, answer.StatusCode()) {
		return fmt.Errorf("%s: status %d: %s", request, answer.StatusCode(), answer.GetBody())
	}
	return nil
}
