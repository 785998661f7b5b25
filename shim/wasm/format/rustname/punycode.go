package rustname

import "strings"

// decodePunycode decodes RFC 3492 as Rust writes it: "_" stands before the digits.
func decodePunycode(s string) (string, bool) {
	var out []rune
	if i := strings.LastIndexByte(s, '_'); i >= 0 {
		out, s = []rune(s[:i]), s[i+1:]
	}
	n, i, bias := 128, 0, 72
	for first := true; s != ""; first = false {
		before, weight := i, 1
		for k := 36; ; k += 36 {
			if s == "" {
				return "", false
			}
			c, digit := s[0], 0
			s = s[1:]
			switch {
			case c >= 'a' && c <= 'z':
				digit = int(c - 'a')
			case c >= '0' && c <= '9':
				digit = int(c-'0') + 26
			default:
				return "", false
			}
			if i += digit * weight; i > 1<<30 || weight > 1<<24 {
				return "", false
			}
			t := min(max(k-bias, 1), 26)
			if digit < t {
				break
			}
			weight *= 36 - t
		}
		length := len(out) + 1
		bias = adapt(i-before, length, first)
		n += i / length
		i %= length
		if n > 0x10ffff || length > maxLength {
			return "", false
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return string(out), true
}

func adapt(delta, length int, first bool) int {
	if first {
		delta /= 700
	} else {
		delta /= 2
	}
	delta += delta / length
	k := 0
	for ; delta > 455; k += 36 {
		delta /= 35
	}
	return k + 36*delta/(delta+38)
}
