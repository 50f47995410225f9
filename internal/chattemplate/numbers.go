package chattemplate

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxIntBits bounds integers; 4300 decimal digits, as CPython prints at most.
const maxIntBits = 14283

// normalInt is b as an int64 where it fits.
func normalInt(b *big.Int) any {
	if b.IsInt64() {
		return b.Int64()
	}
	return b
}

func checkedInt(b *big.Int) (any, error) {
	if b.BitLen() > maxIntBits {
		return nil, limitError("integer bits", maxIntBits)
	}
	return normalInt(b), nil
}

// bigInt returns v as an integer if it is an int or a bool.
func bigInt(v any) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		return big.NewInt(int64(boolInt(v))), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// smallInt returns an int or bool as int64; larger ones saturate.
func smallInt(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return int64(boolInt(v)), true
	case int64:
		return v, true
	case *big.Int:
		if v.Sign() < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return 0, false
}

func isInt(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int:
		return true
	}
	return false
}

func isNumber(v any) bool {
	_, float := v.(float64)
	return float || isInt(v)
}

func toFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case bool:
		return float64(boolInt(v)), true
	case int64:
		return float64(v), true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	case float64:
		return v, true
	}
	return 0, false
}

// compareNumbers orders two numbers exactly; false where either is no number
// or NaN.
func compareNumbers(a, b any) (int, bool) {
	if x, ok := a.(int64); ok {
		if y, ok := b.(int64); ok {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	if !isNumber(a) || !isNumber(b) {
		return 0, false
	}
	x, okX := bigInt(a)
	y, okY := bigInt(b)
	if okX && okY {
		return x.Cmp(y), true
	}
	f, _ := toFloat(a)
	g, _ := toFloat(b)
	if math.IsNaN(f) || math.IsNaN(g) {
		return 0, false
	}
	if okX && !math.IsInf(g, 0) {
		return new(big.Float).SetInt(x).Cmp(big.NewFloat(g)), true
	}
	if okY && !math.IsInf(f, 0) {
		return big.NewFloat(f).Cmp(new(big.Float).SetInt(y)), true
	}
	return big.NewFloat(f).Cmp(big.NewFloat(g)), true
}

// arithmetic is a op b for numbers.
func arithmetic(op string, a, b any) (any, error) {
	x, okX := bigInt(a)
	y, okY := bigInt(b)
	if !okX || !okY || op == "/" {
		return floatArithmetic(op, a, b)
	}
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			return nil, valueErrorf("integer division or modulo by zero")
		}
		rest := new(big.Int)
		z.QuoRem(x, y, rest)
		if rest.Sign() != 0 && rest.Sign() != y.Sign() { // Python rounds down
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			z = rest
		}
	case "**":
		if y.Sign() < 0 {
			return floatArithmetic(op, a, b)
		}
		if x.CmpAbs(big.NewInt(1)) > 0 && (!y.IsInt64() || y.Int64() > maxIntBits || y.Int64()*int64(x.BitLen()-1) > maxIntBits) {
			return nil, limitError("integer bits", maxIntBits)
		}
		if x.CmpAbs(big.NewInt(1)) <= 0 { // 0, 1, -1: only the exponent's parity counts
			y = new(big.Int).SetUint64(uint64(y.Bit(0)) + 2*uint64(boolInt(y.Sign() > 0)))
		}
		z.Exp(x, y, nil)
	}
	return checkedInt(z)
}

func floatArithmetic(op string, a, b any) (any, error) {
	x, _ := toFloat(a)
	y, _ := toFloat(b)
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		if x == 0 && y < 0 {
			return nil, valueErrorf("0.0 cannot be raised to a negative power")
		}
		z := math.Pow(x, y)
		if math.IsNaN(z) && !math.IsNaN(x) && !math.IsNaN(y) {
			return nil, valueErrorf("a complex number, which templates do not have")
		}
		if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			return nil, valueErrorf("numerical result out of range")
		}
		return z, nil
	}
	if y == 0 {
		return nil, valueErrorf("division by zero")
	}
	if op == "/" {
		if isInt(a) && isInt(b) {
			p, _ := bigInt(a)
			q, _ := bigInt(b)
			f, _ := new(big.Rat).SetFrac(p, q).Float64()
			return f, nil
		}
		return x / y, nil
	}
	rest := math.Mod(x, y)
	if rest != 0 && (rest < 0) != (y < 0) {
		rest += y
	}
	if rest == 0 {
		rest = math.Copysign(0, y)
	}
	if op == "%" {
		return rest, nil
	}
	quotient := (x - rest) / y
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	if floor == 0 {
		floor = math.Copysign(0, x/y)
	}
	return floor, nil
}

// floatRepr is Python's repr of a float: the shortest digits that read back.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// parseInt is int(s, base), Python's reading of digits.
func parseInt(s string, base int) (any, bool) {
	s = strings.TrimFunc(s, isSpace)
	if len(s) > maxIntDigits || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]
	if len(s) > 2 && prefix != "" && strings.EqualFold(s[:2], prefix) {
		s = strings.TrimPrefix(s[2:], "_")
	}
	if s == "" || s[0] == '+' || s[0] == '-' || s[0] == '_' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return nil, false
	}
	return normalInt(b), true
}

// parseFloat is float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	if strings.ContainsAny(s, "xXpP") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// floatToInt is int(f).
func floatToInt(f float64) (any, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	b, _ := big.NewFloat(f).Int(nil)
	return normalInt(b), true
}
