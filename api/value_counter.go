package api

// valueCounter counts the names and values of a JSON text as its bytes arrive.
type valueCounter struct {
	values  int64
	inText  bool // within a string
	escaped bool // after a backslash in a string
	inToken bool // within a string, number or literal
}

// add counts the names and values that begin in the next bytes of the text. It returns the total. A nil counter
// counts nothing.
func (c *valueCounter) add(next []byte) int64 {
	if c == nil {
		return 0
	}
	for _, b := range next {
		c.addByte(b)
	}
	return c.values
}

// total returns the number of names and values so far.
func (c *valueCounter) total() int64 { return c.add(nil) }

func (c *valueCounter) addByte(b byte) {
	switch {
	case c.escaped:
		c.escaped = false
	case c.inText && b == '\\':
		c.escaped = true
	case c.inText:
		c.inText = b != '"'
		c.inToken = c.inText
	case b == '{', b == '[':
		c.values++
		c.inToken = false
	case b == '}', b == ']', b == ',', b == ':', b == ' ', b == '\t', b == '\n', b == '\r':
		c.inToken = false
	case !c.inToken:
		c.values++
		c.inToken, c.inText = true, b == '"'
	}
}
