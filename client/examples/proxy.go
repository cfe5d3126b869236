package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/odometer-metering/odometer/client"
)

const maxBody = 1 << 20

// ProxyModel passes requests to the model at url. It reserves the maximum number of tokens of a request,
// and settles the reservation with the number that the model reports.
func ProxyModel(quotas *client.Quotas, url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var asked struct {
			MaxTokens int `json:"max_tokens"`
		}
		if err != nil || json.Unmarshal(prompt, &asked) != nil || asked.MaxTokens <= 0 {
			http.Error(w, "the body must be JSON of at most 1 MiB, with max_tokens", http.StatusBadRequest)
			return
		}
		most := len(prompt) + asked.MaxTokens // a token of the prompt has at least one byte
		amount := client.QuotaAmount{Meter: "tokens", Amount: json.Number(strconv.Itoa(most))}
		var answer []byte
		err = quotas.Reserve(r.Context(), client.Reserve{Customer: Customer(r), Amounts: []client.QuotaAmount{amount}},
			func(ctx context.Context, reservation *client.HeldReservation) error {
				answer, err = complete(ctx, url, prompt, reservation)
				return err
			})
		writeAnswer(w, answer, err)
	})
}

// complete sends the prompt to the model, and records the tokens that the model reports.
func complete(ctx context.Context, url string, prompt []byte, reservation *client.HeldReservation) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(prompt))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("the model answered %s", response.Status), err)
	}
	var completion struct {
		Model string `json:"model"`
		Usage struct {
			TotalTokens json.Number `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(answer, &completion); err != nil {
		return nil, fmt.Errorf("read the model's answer: %w", err)
	}
	return answer, reservation.Record(client.Event{
		EventType: "completion", Value: &completion.Usage.TotalTokens, Properties: &map[string]any{"model": completion.Model},
	})
}

// writeAnswer writes the model's answer, or an error if quotas refused the request or the model failed.
func writeAnswer(w http.ResponseWriter, answer []byte, err error) {
	exceeded, failed := new(client.QuotaExceededError), new(client.SettleError)
	switch {
	case errors.As(err, &exceeded):
		writeRefusal(w, exceeded.ResetsAt)
	case errors.Is(err, client.ErrUnavailable):
		http.Error(w, "quotas are not available", http.StatusServiceUnavailable)
	case err != nil && !errors.As(err, &failed):
		http.Error(w, "the model is not available", http.StatusBadGateway)
	default: // store the events of a SettleError, and settle them later
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}
}
