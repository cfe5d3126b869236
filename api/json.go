package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/odometer-metering/odometer/metering"
)

// numbersKept decodes a JSON value with its numbers as json.Number. Validation can then report the location of
// a number that does not fit a float.
type numbersKept struct{ into *any }

func (n numbersKept) UnmarshalJSON(text []byte) error { return decodeKeepingNumbers(text, n.into) }

// decodeKeepingNumbers decodes the first JSON value of a text. Numbers become json.Number.
func decodeKeepingNumbers(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// unmarshal is json.Unmarshal with errors that do not repeat request data. huma first decodes the whole body into
// an *any. In this call, unmarshal also checks unclearRule and decodes numbers as json.Number.
func unmarshal(data []byte, into any) error {
	if tree, whole := into.(*any); whole {
		if err := unclearRule(data); err != nil {
			return err
		}
		into = &numbersKept{tree}
	}
	err := json.Unmarshal(data, into)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Value, "number") {
		err = json.Unmarshal(plainIntegers(data), into)
	}
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		if strings.HasSuffix(syntax.Error(), "exceeded max depth") {
			return fmt.Errorf("must have at most %d nested levels", maxNesting)
		}
		return fmt.Errorf("is not JSON at byte %d", syntax.Offset)
	}
	if errors.As(err, &mismatch) {
		return fmt.Errorf("has a value of the wrong type at byte %d", mismatch.Offset)
	}
	return err
}

// plainIntegers returns a JSON text in which each integer with an exponent or decimals, such as 1e6 or 1000000.0, is
// written as digits. JSON Schema allows these forms for integers, and encoding/json does not.
func plainIntegers(text []byte) (plain []byte) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(text))
	copied := 0
	for {
		token, err := decoder.ReadToken()
		if err != nil { // the end of the text
			return append(plain, text[copied:]...)
		}
		literal := token.String()
		if token.Kind() != '0' || !strings.ContainsAny(literal, ".eE") {
			continue
		}
		number, err := metering.ParseDecimal(literal)
		if err != nil || !number.Equal(number.Round(0)) {
			continue
		}
		end := int(decoder.InputOffset())
		plain = append(plain, text[copied:end-len(literal)]...)
		plain = append(plain, number.Round(0).String()...)
		copied = end
	}
}

// unclearRule returns an error for a body that JSON parsers interpret in different ways: a body with a repeated
// name, or with text that is not UTF-8. It returns nil for syntax errors, which encoding/json reports.
func unclearRule(body []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(body))
	_, err := decoder.ReadValue()
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return nil
	}
	switch location := place(syntax.JSONPointer); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return metering.Invalid(location, givenTwice)
	case json.Valid(body):
		return metering.Invalid(location, "must be "+validUTF8)
	}
	return nil
}

// place returns the location of a JSON pointer, such as body.metadata.a for /metadata/a.
func place(pointer jsontext.Pointer) string {
	names := []string{"body"}
	for name := range pointer.Tokens() {
		names = append(names, metering.ShortName(name))
	}
	return shortened(strings.Join(names, "."))
}
