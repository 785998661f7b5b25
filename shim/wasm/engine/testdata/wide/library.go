package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/format"
	"io"
	"math"
	"math/rand"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode"
)

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
