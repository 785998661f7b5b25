package link

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestFramesArriveAsSent(t *testing.T) {
	var wire bytes.Buffer
	sent := []Message{{Kind: Start}, {Kind: Exit, Code: 7, Text: "ü"}, {Kind: Ceiling, Bytes: 1 << 40}}
	for _, m := range sent {
		if err := Write(&wire, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		var got Message
		if err := Read(&wire, &got, MaxMessage); err != nil || got.Kind != want.Kind || got.Code != want.Code || got.Text != want.Text || got.Bytes != want.Bytes {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if err := Read(&wire, &Message{}, MaxMessage); err != io.EOF {
		t.Errorf("end of stream: %v", err)
	}
}

func TestBadFramesAreErrors(t *testing.T) {
	for name, frame := range map[string]string{
		"too long": "\xff\xff\xff\x7f",
		"cut":      "\x05\x00\x00\x00{}",
		"no JSON":  "\x02\x00\x00\x00xx",
		"cut head": "\x05\x00",
	} {
		if err := Read(strings.NewReader(frame), &Message{}, MaxMessage); err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShorten(t *testing.T) {
	if got := Shorten("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("ü", maxText)
	if got := Shorten(long); len(got) > maxText+8 || !strings.HasSuffix(got, "ü …") {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-8:])
	}
}
