package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/cmd/sunaba/units"
)

// The picture's measures, in pixels.
const (
	plotWidth, plotHeight = 720, 360
	plotLeft, plotBottom  = 60, 300
	plotTop               = 40
	bars                  = 24
)

// Plot draws, as SVG, how many pods cost how much memory at most, with a line at the value that
// Fixed declares.
func Plot(out io.Writer, title string, all []Figures) error {
	values := column(all, Figures.Memory)
	mebibytes, _ := Fixed(all)
	declared := mebibytes << 20
	low, high := slices.Min(values), max(slices.Max(values), declared)
	span := max(high-low, 1<<10)
	counts := make([]int, bars)
	for _, v := range values {
		counts[min(int((v-low)*bars/span), bars-1)]++
	}
	tallest := slices.Max(counts)
	x := func(v int64) float64 {
		return plotLeft + float64(v-low)/float64(span)*(plotWidth-2*plotLeft)
	}
	y := func(n int) float64 {
		return plotBottom - float64(n)/float64(tallest)*(plotBottom-plotTop)
	}
	var err error
	draw := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(out, format+"\n", args...)
		}
	}
	draw(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, plotWidth, plotHeight)
	draw(`<rect width="100%%" height="100%%" fill="white"/>`)
	draw(`<text x="%d" y="20" font-size="14">%s</text>`, plotLeft, escape.Replace(title))
	width := float64(plotWidth-2*plotLeft) / bars
	for i, n := range counts {
		if n > 0 {
			draw(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#4878a8"><title>%d pods</title></rect>`,
				plotLeft+float64(i)*width, y(n), width-1, plotBottom-y(n), n)
		}
	}
	draw(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black"/>`, plotLeft, plotBottom, plotWidth-plotLeft, plotBottom)
	draw(`<text x="%d" y="%d" text-anchor="end">%d</text>`, plotLeft-6, plotTop+4, tallest)
	draw(`<text x="%d" y="%d" text-anchor="end">0</text>`, plotLeft-6, plotBottom)
	for i := range int64(5) {
		v := low + span*i/4
		draw(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(v), plotBottom+18, units.Bytes(v))
	}
	for _, mark := range []struct {
		value      int64
		name, fill string
		line       int
	}{{quantile(values, 0.5), "median", "#2a7f3f", 0}, {quantile(values, 0.99), "p99", "#a83232", 1}, {declared, "declared", "black", 2}} {
		draw(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s" stroke-dasharray="4 3"/>`, x(mark.value), plotTop, x(mark.value), plotBottom, mark.fill)
		draw(`<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%s %s</text>`, x(mark.value), plotTop-2+12*mark.line, mark.fill, mark.name, units.Bytes(mark.value))
	}
	draw(`<text x="%d" y="%d" text-anchor="middle">memory a pod costs at most beyond its containers' own work</text>`, plotWidth/2, plotBottom+42)
	draw(`</svg>`)
	return err
}

// escape makes text safe in SVG.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
