package measure

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBarChart(t *testing.T) {
	for name, bars := range map[string][]Bar{
		"two":     {{"ours <1>", Spread{1, 2, 3}, true}, {"theirs & more", Spread{4, 5, 6}, false}},
		"nothing": {{"zero", Spread{}, true}},
		"none":    nil,
	} {
		text := BarChart("time, ms", bars)
		d, names := xml.NewDecoder(strings.NewReader(text)), 0
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, text)
			}
			if chars, ok := token.(xml.CharData); ok {
				for _, b := range bars {
					if string(chars) == b.Name {
						names++
					}
				}
			}
		}
		if names != len(bars) || strings.Contains(text, "NaN") {
			t.Errorf("%s: %d of %d bars have their names:\n%s", name, names, len(bars), text)
		}
	}
	// The longest line ends where the space for its figure begins.
	if text := BarChart("", []Bar{{"", Spread{1, 2, 4}, true}}); !strings.Contains(text, `x2="620.0"`) || !strings.Contains(text, `width="210.0"`) {
		t.Error(text)
	}
}
