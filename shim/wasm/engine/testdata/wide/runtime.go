package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

func panics(w io.Writer) {
	var none *item
	var zero int
	list := []int{1, 2, 3}
	for i, f := range []func(){
		func() { fmt.Fprintln(w, none.Name) }, func() { fmt.Fprintln(w, 1/zero) }, func() { fmt.Fprintln(w, list[len(list)+zero]) },
		func() { fmt.Fprintln(w, list[2:1+zero]) }, func() { fmt.Fprintln(w, any(list).(error)) }, func() { panic(fmt.Errorf("own %d", zero)) },
		func() { var m map[string]int; m["a"] = 1 }, func() { close((chan int)(nil)) }, func() { fmt.Fprintln(w, make([]int, zero-1)) },
		func() { defer func() { panic(fmt.Sprint("again after ", recover())) }(); panic("first") },
	} {
		func() {
			defer func() { fmt.Fprintln(w, i, "deferred") }()
			defer func() { fmt.Fprintln(w, i, recover()) }()
			for n := range 3 {
				defer func() { fmt.Fprintln(w, "n", n) }()
			}
			f()
		}()
	}
}

func stacks(w io.Writer) {
	var deep func(n int, pad [64]byte) int
	deep = func(n int, pad [64]byte) int {
		if n == 0 {
			return int(pad[3])
		}
		pad[n%64]++
		return deep(n-1, pad) + int(pad[(n+1)%64])&1
	}
	var done sync.WaitGroup
	results := make([]int, 8)
	for i := range results { // new stacks grow from small
		done.Go(func() { results[i] = deep(2000*(i+1), [64]byte{3: byte(i)}) })
	}
	done.Wait()
	fmt.Fprintln(w, results, deep(50000, [64]byte{}), ackermann(2, 300))
}

func ackermann(m, n int) int {
	switch {
	case m == 0:
		return n + 1
	case n == 0:
		return ackermann(m-1, 1)
	}
	return ackermann(m-1, ackermann(m, n-1))
}

func goroutines(w io.Writer) {
	work, results := make(chan int), make(chan int, 5)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for {
				select {
				case n, more := <-work:
					if !more {
						return
					}
					runtime.Gosched()
					results <- n * n
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		for i := range 2000 {
			work <- i
		}
		close(work)
		all.Wait()
		close(results)
	}()
	sum := 0
	for r := range results {
		sum += r
	}
	cancel()
	var mu sync.RWMutex
	var once sync.Once
	shared := map[int]int{}
	for i := range 100 {
		all.Go(func() {
			once.Do(func() { shared[-1] = 7 })
			mu.Lock()
			shared[i%10]++
			mu.Unlock()
		})
	}
	all.Wait()
	timer, late := time.NewTimer(3*time.Millisecond), false
	select {
	case <-timer.C:
	case <-time.After(time.Minute):
		late = true
	}
	r, p := io.Pipe()
	go func() { fmt.Fprint(p, strings.Repeat("pipe", 5000)); p.Close() }()
	data, err := io.ReadAll(r)
	fmt.Fprintln(w, sum, shared, late, len(data), err, context.Cause(ctx))
}

func garbage(w io.Writer) {
	type node struct {
		left, right *node
		data        []byte
	}
	var grow func(depth int) *node
	grow = func(depth int) *node {
		if depth == 0 {
			return nil
		}
		return &node{grow(depth - 1), grow(depth - 1), make([]byte, depth*3)}
	}
	var size func(n *node) int
	size = func(n *node) int {
		if n == nil {
			return 0
		}
		return len(n.data) + size(n.left) + size(n.right)
	}
	kept := grow(12)
	total := 0
	for range 30 {
		total += size(grow(11))
	}
	runtime.GC()
	m := map[string][]byte{}
	for i := range 20000 {
		m[strconv.Itoa(i%997)] = append(m[strconv.Itoa(i%997)], byte(i))
	}
	fmt.Fprintln(w, size(kept), total, len(m), len(m["996"]), cap(append(make([]int, 5), 1)))
}
