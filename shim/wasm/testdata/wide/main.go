// Command wide goes through much of Go's runtime and library and says what came of each part. What it says is the same for
// every platform. It can serve, so that it is compiled as a server is.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/format"
	"hash/crc32"
	"hash/fnv"
	"io"
	"math"
	"math/big"
	"math/bits"
	"math/rand"
	"net"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode"
)

func main() {
	if len(os.Args) > 100 {
		serve()
	}
	for _, part := range []struct {
		name string
		run  func(io.Writer)
	}{
		{"numbers", numbers}, {"floats", floats}, {"big", bigNumbers}, {"sums", sums}, {"sorting", sorting}, {"text", text},
		{"json", inJSON}, {"formats", formats}, {"packing", packing}, {"source", source}, {"panics", panics}, {"stacks", stacks},
		{"goroutines", goroutines}, {"garbage", garbage}, {"types", types}, {"flow", flow},
	} {
		h := fnv.New64a()
		n := &count{}
		part.run(io.MultiWriter(h, n))
		fmt.Printf("%s: %d bytes, %016x\n", part.name, n.bytes, h.Sum64())
	}
}

// serve is never called, and known to the linker.
func serve() {
	l, err := net.FileListener(os.Stdin)
	if err == nil {
		_, _ = l.Accept()
	}
}

type count struct{ bytes int }

func (c *count) Write(p []byte) (int, error) { c.bytes += len(p); return len(p), nil }

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

type item struct {
	Name  string
	Value float64
	Tags  map[string]int `json:"tags,omitempty"`
	Next  *item          `json:",omitempty"`
}

func items(n int) []item {
	r, all := rand.New(rand.NewSource(3)), make([]item, n)
	for i := range all {
		all[i] = item{Name: strconv.Itoa(r.Intn(n)), Value: r.Float64(), Tags: map[string]int{"i": i, "π\n": -i}}
		if i%3 == 0 {
			all[i].Next = &item{Name: "next " + all[i].Name}
		}
	}
	return all
}

func sorting(w io.Writer) {
	all := items(3000)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	for _, i := range all {
		fmt.Fprint(w, i.Name, " ")
	}
	slices.SortFunc(all, func(a, b item) int { return int(math.Copysign(1, a.Value-b.Value)) })
	at, found := slices.BinarySearchFunc(all, 0.5, func(i item, v float64) int { return int(math.Copysign(1, i.Value-v)) })
	fmt.Fprintln(w, all[0].Name, all[len(all)-1].Name, at, found, sort.SearchInts([]int{1, 3, 5}, 4))
}

func text(w io.Writer) {
	words := strings.Fields(strings.Repeat("the quick Brown fox, жираф; 日本語 jumps over 12 lazy dogs. ", 200))
	re := regexp.MustCompile(`(?i)(\pL+)[,;.]?\s+(\d+|over)`)
	joined := strings.Join(words, " ")
	fmt.Fprintln(w, re.ReplaceAllString(joined, "$2-$1"), re.FindAllStringSubmatchIndex(joined, 7))
	fmt.Fprintln(w, strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return -1
		}
		return unicode.ToTitle(r)
	}, joined), strings.Count(joined, "o"), strings.LastIndex(joined, "lazy"), strings.EqualFold("Straße", "STRASSE"), []rune(joined)[40], strings.NewReplacer("a", "1", "fox", "ox").Replace(joined))
	if err := template.Must(template.New("t").Parse(`{{range $i, $e := .}}{{if gt $i 3}}{{$e.Name | printf "%q"}} {{len .Tags}};{{end}}{{end}}`)).Execute(w, items(100)); err != nil {
		fmt.Fprintln(w, err)
	}
}

func inJSON(w io.Writer) {
	data, err := json.MarshalIndent(items(300), "", " ")
	fmt.Fprintln(w, string(data), err)
	var back []item
	err = json.Unmarshal(data, &back)
	fmt.Fprintln(w, reflect.DeepEqual(back, items(300)), err)
	var loose any
	fmt.Fprintln(w, json.Unmarshal(data, &loose), len(loose.([]any)), json.Unmarshal([]byte(`{"a": [1, 2, {"b": tru}]}`), &loose))
}

func formats(w io.Writer) {
	var buffer bytes.Buffer
	err := gob.NewEncoder(&buffer).Encode(items(20)[0])
	var back item
	fmt.Fprintln(w, err, gob.NewDecoder(&buffer).Decode(&back), back.Name)
	data, err := xml.Marshal(struct {
		XMLName struct{} `xml:"a"`
		B       []string `xml:"b>c"`
		D       int      `xml:"d,attr"`
	}{B: []string{"<", "&"}, D: 7})
	fmt.Fprintln(w, string(data), err, binary.Write(w, binary.BigEndian, struct {
		A uint16
		B float32
	}{7, 1.5}))
	fmt.Fprintln(w, time.Unix(1e9, 5).UTC().Format(time.RFC3339Nano), time.Duration(1e13+7), time.Date(2024, 2, 30, 0, 0, 0, 0, time.UTC).Weekday())
	fmt.Fprintf(w, "%+v %#v %T %08.3f %x %q %U %-10s| %t\n", back.Name, []int{1}, back, math.Pi, "hi", 'ß', '⌘', "left", true)
}

func packing(w io.Writer) {
	for _, n := range []int{0, 100, 70000} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		z.ModTime = time.Unix(0, 0)
		_, err := z.Write(noise(n))
		err = errors.Join(err, z.Close())
		fmt.Fprintln(w, packed.Len(), err)
		r, err := gzip.NewReader(&packed)
		if err != nil {
			fmt.Fprintln(w, err)
			continue
		}
		back, err := io.ReadAll(r)
		fmt.Fprintln(w, bytes.Equal(back, noise(n)), err)
	}
}

func source(w io.Writer) {
	code := "package a\nimport \"fmt\"\nfunc  f( x int,y ...string )(int,error){ if x>1{return x*2+1,nil}\nfor i:=range y{switch{case i>2:fmt.Println(i)\ndefault:go func(){}()}}\nreturn 0,nil}\n"
	out, err := format.Source([]byte(code + strings.Repeat("var _ = map[string][]int{\"a\":{1,2},\"bcd\":{3}}\n", 100)))
	fmt.Fprintln(w, string(out), err)
	_, err = format.Source([]byte("package a; func {"))
	fmt.Fprintln(w, err)
}

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
