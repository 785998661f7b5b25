package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ side float64 }
type circle struct{ radius float64 }

func (s square) area() float64  { return s.side * s.side }
func (c *circle) area() float64 { return math.Pi * c.radius * c.radius }

func total[S ~[]E, E shape](all S) (sum float64) {
	for _, s := range all {
		sum += s.area()
	}
	return sum
}

func types(w io.Writer) {
	all := []shape{square{2}, &circle{1}, square{3}}
	bound := all[1].area
	fmt.Fprintln(w, total(all), bound(), all[0] == shape(square{2}), errors.Is(fmt.Errorf("a: %w", io.EOF), io.EOF))
	for _, v := range []any{1, "a", 2.5, nil, all[0], []byte("b"), func() {}, struct{ A, b int }{1, 2}, [2]bool{true}, 'x', io.EOF, 3i} {
		switch t := v.(type) {
		case int, rune:
			fmt.Fprintf(w, "%v of %T\n", t, t)
		case string:
			fmt.Fprintln(w, t+"!")
		case shape:
			fmt.Fprintln(w, t.area())
		case error:
			fmt.Fprintln(w, t.Error())
		default:
			fmt.Fprintln(w, reflect.TypeOf(t), reflect.ValueOf(v).IsValid())
		}
	}
	f := reflect.MakeFunc(reflect.TypeFor[func(int, string) string](), func(in []reflect.Value) []reflect.Value {
		return []reflect.Value{reflect.ValueOf(strings.Repeat(in[1].String(), int(in[0].Int())))}
	}).Interface().(func(int, string) string)
	fmt.Fprintln(w, f(3, "ab"), reflect.ValueOf(all[1]).MethodByName("String").IsValid())
}

func flow(w io.Writer) {
outer:
	for i := range 50 {
		for j := 0; ; j++ {
			switch {
			case j == i:
				continue outer
			case i*j == 1200:
				break outer
			case (i^j)&7 == 5:
				fmt.Fprint(w, i, ".", j, " ")
				fallthrough
			case j%11 == 3:
				if i&1 == 0 {
					goto next
				}
				fmt.Fprint(w, "odd ")
			}
		next:
		}
	}
	for i, r := range "añ\xff日" {
		fmt.Fprint(w, i, r)
	}
	seq := func(yield func(int) bool) {
		for i := 0; yield(i); i += 3 {
		}
	}
	for i := range seq {
		if i > 20 {
			break
		}
		defer fmt.Fprint(w, i)
	}
	x := []int{5, 1, 4}
	x[0], x[1], x[2] = x[1], x[2], x[0]
	a, b := 0, 1
	for range 90 {
		a, b = b, a+b
	}
	fmt.Fprintln(w, x, a, min(3, 1, 2), max(2.5, 1), copy(x, x[1:]), x)
}
