package main

import (
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/big"
	"math/bits"
	"math/rand"
	"strconv"
)

func numbers(w io.Writer) {
	r := rand.New(rand.NewSource(1))
	for range 2000 {
		a, b := r.Int63()-r.Int63(), int64(r.Int31())-1<<30
		u, s := r.Uint64(), uint(r.Intn(70))
		fmt.Fprintln(w, a+b, a-b, a*b, a/(b|1), a%(b|1), int32(a)*int32(b), int8(a), uint16(a), u<<s, u>>s, a>>s, int32(a)>>s, u&^uint64(a),
			bits.LeadingZeros64(u), bits.OnesCount32(uint32(u)), bits.RotateLeft64(u, int(s)), bits.Reverse16(uint16(u)))
		hi, lo := bits.Mul64(u, uint64(a))
		fmt.Fprintln(w, hi, lo, strconv.FormatInt(a, 36), strconv.Quote(string(rune(u%0x3000))))
	}
}

func floats(w io.Writer) {
	r := rand.New(rand.NewSource(2))
	for range 2000 {
		f := math.Float64frombits(r.Uint64())
		g := r.NormFloat64() * 1e9
		fmt.Fprintln(w, f, float32(g), g < f, f != f, int64(g), uint8(int64(g)), math.Floor(g), math.Sqrt(math.Abs(g)), math.Trunc(g/7), math.Copysign(f, g),
			strconv.FormatFloat(g, 'e', -1, 32), math.Float32bits(float32(g)))
		back, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, 64), 64)
		fmt.Fprintln(w, back == f || f != f, err)
	}
}

func bigNumbers(w io.Writer) {
	f := big.NewInt(1)
	for i := int64(2); i < 400; i++ {
		f.Mul(f, big.NewInt(i))
	}
	m := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 521), big.NewInt(1))
	fmt.Fprintln(w, f, new(big.Int).Exp(big.NewInt(3), f, m), m.ProbablyPrime(5), new(big.Int).ModInverse(f, m), new(big.Rat).SetFrac(f, m).FloatString(50))
}

func noise(n int) []byte {
	r, data := rand.New(rand.NewSource(int64(n))), make([]byte, n)
	for i := range data {
		data[i] = byte(r.Intn(256)) & byte(r.Intn(256))
	}
	return data
}

func sums(w io.Writer) {
	for _, n := range []int{0, 1, 63, 64, 65, 1000, 100000} {
		data := noise(n)
		fmt.Fprintf(w, "%x %x %x %x %s\n", sha256.Sum256(data), sha512.Sum512(data), md5.Sum(data), crc32.ChecksumIEEE(data), base64.StdEncoding.EncodeToString(data))
	}
}
