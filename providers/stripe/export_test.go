package stripe

import "encoding/json"

// PriceOf says why what a price charges cannot be known, of an item that is
// billed in the currency.
func PriceOf(shown json.RawMessage, currency string) (string, error) {
	var s shownPrice
	if err := json.Unmarshal(shown, &s); err != nil {
		return "", err
	}
	_, reason := s.priceIn(currency)
	return reason, nil
}
