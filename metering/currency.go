package metering

// ValidCurrency checks the form of an ISO 4217 code.
func ValidCurrency(location, code string) error {
	if len(code) != 3 {
		return Invalid(location, "must be a three-letter ISO 4217 code such as USD")
	}
	for _, c := range code {
		if c < 'A' || c > 'Z' {
			return Invalid(location, "must be a three-letter ISO 4217 code such as USD")
		}
	}
	return nil
}
