package metering

import "strings"

// minorDigits maps each currency that a price can have to its number of decimals. The source is
// table A.1 of ISO 4217 as of 1 January 2026
// (https://www.six-group.com/en/products-services/financial-information/data-standards.html) without codes
// that are not used for prices: those without a minor unit (metals, XDR, XTS, XXX and others), XAD, USN,
// CHE and CHW.
var minorDigits = func() map[string]int32 {
	digits := make(map[string]int32)
	for minor, codes := range map[int32]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP " +
			"COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS " +
			"INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV " +
			"MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS " +
			"SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	} {
		for code := range strings.FieldsSeq(codes) {
			digits[code] = minor
		}
	}
	return digits
}()

// ValidCurrency returns an error if the code is not an active currency of ISO 4217.
func ValidCurrency(location, code string) error {
	if _, known := minorDigits[code]; !known {
		return Invalid(location, "must be an active ISO 4217 currency code, such as USD; codes of metals, funds and tests are not accepted")
	}
	return nil
}

// MinorDigits returns the number of decimals of the currency. It is 2 for codes that a provider still has
// but ISO 4217 has withdrawn.
func MinorDigits(currency string) int32 {
	if digits, known := minorDigits[currency]; known {
		return digits
	}
	return 2
}
