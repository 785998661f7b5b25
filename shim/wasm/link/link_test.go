package link

import (
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestMessagesArriveAsSent(t *testing.T) {
	ours, theirs := pair(t)
	sent := []Message{{Kind: Start}, {Kind: Exit, Code: 7, Text: "ü"}, {Kind: Ceiling, Bytes: 1 << 40}}
	for _, m := range sent {
		if err := Send(ours, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		if got, err := Receive(theirs); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	ours.Close()
	if _, err := Receive(theirs); err != io.EOF {
		t.Errorf("end of the link: %v", err)
	}
}

// TestPeekedMessageStays has a reader die after it has looked at a message: its successor, with a
// copy of this end, finds it.
func TestPeekedMessageStays(t *testing.T) {
	ours, theirs := pair(t)
	for _, m := range []Message{{Kind: Started}, {Kind: Exit, Code: 7}} {
		if err := Send(theirs, m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if m, err := Peek(ours); err != nil || m.Kind != Started {
			t.Errorf("got %+v, %v", m, err)
		}
	}
	if err := Skip(ours); err != nil {
		t.Error(err)
	}
	if m, err := Peek(ours); err != nil || m.Kind != Exit || m.Code != 7 {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestLastWordOfOneWhoDidNotListen has the other side end with a message that it did not take.
func TestLastWordOfOneWhoDidNotListen(t *testing.T) {
	for name, next := range map[string]func(*os.File) (Message, error){"peek": Peek, "receive": Receive} {
		ours, theirs := pair(t)
		if err := errors.Join(Send(theirs, Message{Kind: Exit, Code: 7}), Send(ours, Message{Kind: Interrupt}), theirs.Close()); err != nil {
			t.Fatal(err)
		}
		if m, err := next(ours); err != nil || m.Code != 7 {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

// TestWaitingForAMessage is for a reader that comes first.
func TestWaitingForAMessage(t *testing.T) {
	ours, theirs := pair(t)
	got := make(chan Message)
	go func() {
		m, err := Receive(theirs)
		if err != nil {
			t.Error(err)
		}
		got <- m
	}()
	if err := Send(ours, Message{Kind: Start}); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Kind != Start {
		t.Errorf("got %+v", m)
	}
}

func TestConfigurationsOfAnySize(t *testing.T) {
	for _, size := range []int{0, 100, maxPacket, 5 << 20} {
		ours, theirs := pair(t)
		want := Config{Args: []string{"a", strings.Repeat("b", size)}, UID: 7}
		sent := make(chan error, 1)
		go func() { sent <- errors.Join(SendConfig(ours, want), Send(ours, Message{Kind: Start})) }()
		if got, err := ReceiveConfig(theirs); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d bytes: %v, or another one", size, err)
		}
		if m, err := Receive(theirs); err != nil || m.Kind != Start {
			t.Errorf("%d bytes: then %+v, %v", size, m, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

func TestBadPacketsAreErrors(t *testing.T) {
	for name, packet := range map[string]string{
		"too long": strings.Repeat(" ", maxPacket+1),
		"no JSON":  "xx",
	} {
		ours, theirs := pair(t)
		if _, err := ours.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
		if m, err := Receive(theirs); err == nil || err == io.EOF {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, packets := range map[string][]string{
		"too long": {"\xff\xff\xff\x7f"},
		"cut":      {"\x05\x00\x00\x00{}"},
		"no JSON":  {"\x02\x00\x00\x00xx"},
		"cut head": {"\x05\x00"},
	} {
		ours, theirs := pair(t)
		for _, p := range packets {
			if _, err := ours.Write([]byte(p)); err != nil {
				t.Fatal(err)
			}
		}
		ours.Close()
		if c, err := ReceiveConfig(theirs); err == nil || err == io.EOF {
			t.Errorf("configuration, %s: %+v, %v", name, c, err)
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
