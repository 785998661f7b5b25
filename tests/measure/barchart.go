package measure

import (
	"fmt"
	"html"
	"strings"
)

// Bar is one of a bar chart: its length is the median, and a line spans the quarters.
type Bar struct {
	Name   string
	Values Spread
	Ours   bool
}

// Measures of a bar chart, in pixels.
const (
	chartWidth, barLeft, barRight = 720, 200, 100
	barTop, barStep, barHeight    = 36, 28, 18
)

// BarChart draws horizontal bars from 0, as SVG.
func BarChart(title string, bars []Bar) string {
	var b strings.Builder
	longest := 0.0
	for _, bar := range bars {
		longest = max(longest, bar.Values.High)
	}
	x := func(v float64) float64 {
		if longest == 0 {
			return barLeft
		}
		return barLeft + v/longest*(chartWidth-barLeft-barRight)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, barTop+len(bars)*barStep+8)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n"+`<text x="8" y="20" font-size="14">%s</text>`+"\n", html.EscapeString(title))
	for i, bar := range bars {
		y, fill := barTop+i*barStep, "#a8a8a8"
		if bar.Ours {
			fill = "#4878a8"
		}
		middle := float64(y) + barHeight/2
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", barLeft-8, middle+4, html.EscapeString(bar.Name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", barLeft, y, x(bar.Values.Median)-barLeft, barHeight, fill)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.0f" x2="%.1f" y2="%.0f" stroke="black"/>`+"\n", x(bar.Values.Low), middle, x(bar.Values.High), middle)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.0f">%.2f</text>`+"\n", x(bar.Values.High)+6, middle+4, bar.Values.Median)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
