package stripe

import "encoding/json"

// PriceOf returns the reason why the price of an item billed in the currency is not supported, or "" if it
// is supported.
func PriceOf(shown json.RawMessage, currency string) (string, error) {
	var s shownPrice
	if err := json.Unmarshal(shown, &s); err != nil {
		return "", err
	}
	_, reason := s.priceIn(currency)
	return reason, nil
}
