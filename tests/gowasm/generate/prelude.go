package generate

// prelude is what every program starts with.
const prelude = `package main

import (
	"math"
	"math/bits"
	"runtime"
)

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint
}

type pair struct{ x, y int64 }

type node struct {
	a     int64
	b     uint32
	c     float64
	name  string
	inner pair
	e     uint8
	next  *node
	list  []int64
}

func (n *node) sum() uint64 {
	h := uint64(7)
	for i := 0; n != nil && i < 8; n, i = n.next, i+1 {
		h = mix(h, uint64(n.a)+uint64(n.b)+uint64(n.e)+uint64(len(n.list)))
	}
	return h
}

func (n *node) add(x int64) int64 { n.a += x; return n.a }

func (p pair) area(k int) int { return int(p.x)*k + int(p.y) }

type shape interface{ area(int) int }

type square int32

func (s square) area(k int) int { return int(s)*int(s) + k }

type wide struct {
	pair
	more [12]int64
}

func (w *wide) area(k int) int { return int(w.more[uint(k)%12]) + w.pair.area(k) }

var (
	fund  int
	total uint64
	words = []string{"", "a", "bcd", "efgh ijkl", "\u00e4\u00f6\u00fc\u7802\u5834", "0123456789012345678901234567890123456789"}
	table = []uint32{1, 1 << 31, 0xffff, 12345, 0xdeadbeef, 7, 0}
)

func spend() bool { fund--; return fund > 0 }

func mix(h, v uint64) uint64 { h ^= v + 0x9e3779b97f4a7c15 + h<<6 + h>>2; return h * 0xff51afd7ed558ccd }

func mixText(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = mix(h, uint64(s[i]))
	}
	return h
}

func tell(r any) uint64 {
	switch r := r.(type) {
	case error:
		return mixText(1, r.Error())
	case string:
		return mixText(2, r)
	case int:
		return mix(3, uint64(r))
	}
	return 4
}

func guard(name string, f func() uint64) {
	fund = 1500
	h := uint64(0)
	func() {
		defer func() {
			if r := recover(); r != nil {
				h = mix(h, tell(r))
			}
		}()
		h = f()
	}()
	total = mix(total, h)
	println(name, h)
}

func meet(all ...func()) {
	done := make(chan int)
	for i, f := range all {
		go func() {
			f()
			done <- i
		}()
	}
	for range all {
		total = mix(total, uint64(<-done))
	}
}

func least[T number](a, b T) T {
	if b < a {
		return b
	}
	return a
}

func turn[T number](a, b T) T {
	for range 3 {
		a, b = b, a+b>>1
	}
	return a
}

func mapped[T, U any](in []T, f func(T) U) []U {
	out := make([]U, 0, len(in))
	for _, v := range in {
		if !spend() {
			break
		}
		out = append(out, f(v))
	}
	return out
}

func high(a, b uint64) uint64 { h, l := bits.Mul64(a, b); return h ^ l }

func at(xs []int64, i int) int64 {
	if len(xs) == 0 {
		return int64(i)
	}
	return xs[uint(i)%uint(len(xs))]
}

func char(s string, i int) byte {
	if len(s) == 0 {
		return 0
	}
	return s[uint(i)%uint(len(s))]
}

func join(a, b string) string {
	if len(a)+len(b) > 300 {
		return a
	}
	return a + b
}

func part(s string, i, j int) string {
	i, j = int(uint(i)%uint(len(s)+1)), int(uint(j)%uint(len(s)+1))
	return s[min(i, j):max(i, j)]
}

func cut(xs []int64, i, j int64) []int64 {
	n := uint64(len(xs) + 1)
	i, j = int64(uint64(i)%n), int64(uint64(j)%n)
	return xs[min(i, j):max(i, j)]
}

func ints(a int64) []int64 {
	xs := make([]int64, uint64(a)%14)
	for i := range xs {
		xs[i] = a >> i
	}
	return xs
}

func nodes(a int64) *node {
	var first *node
	for i := range 1 + uint64(a)%4 {
		first = &node{a: a + int64(i), b: uint32(a), c: float64(a), name: words[i], inner: pair{a, -a}, e: uint8(i), next: first}
	}
	return first
}

func shapes(a int64) shape {
	switch uint64(a) % 4 {
	case 0:
		return square(a)
	case 1:
		return pair{a, 3}
	case 2:
		return &wide{pair: pair{a, a}}
	}
	return shape(square(1))
}

func mapOf(a int64) map[int64]uint32 {
	m := map[int64]uint32{}
	for i := range uint64(a) % 20 {
		m[a>>i] += uint32(i)
	}
	return m
}

func sumOf(all ...int64) (sum int64) {
	for _, v := range all {
		sum = sum*31 + v
	}
	return sum
}

func classify(v any) int64 {
	switch v := v.(type) {
	case int8, int16, int32:
		return 1
	case int64:
		return v
	case uint64:
		return int64(v >> 1)
	case string:
		return int64(len(v))
	case []byte:
		return int64(cap(v[:len(v):len(v)]))
	case interface{ area(int) int }:
		return int64(v.area(2))
	case *node:
		return int64(v.sum())
	case nil:
		return -1
	case func(int64) int64:
		return v(5)
	}
	return 0
}

func recurse(n int, v int64) int64 {
	if n <= 0 || !spend() {
		return v
	}
	var frame [9]int64
	frame[uint64(v)%9] = v
	if n%16 == 5 {
		runtime.Gosched()
	}
	r := recurse(n-1, v+frame[n%9])
	return r + frame[uint64(v)%9]
}

func deep(n int, v uint64) uint64 {
	if n == 0 {
		return v
	}
	var frame [40]uint64
	frame[v%40] = v
	v = deep(n-1, mix(v, uint64(n)))
	return v + frame[v%40]
}

func pad1(a uint64) (uint64, int, int) { return a, 0, 0 }

func pad2[T any](a uint64, b T) (uint64, T, int) { return a, b, 0 }

func pad3[T, U any](a uint64, b T, c U) (uint64, T, U) { return a, b, c }

`
