package registry

import (
	"reflect"
	"testing"
	"time"
)

// Amounts and times below zero mean nothing: they are the defaults, as zero is.
func TestDefaultsOfWhatIsBelowZero(t *testing.T) {
	below := Options{
		ConnectTimeout: -time.Second, StallTimeout: -time.Second, MaxRetryAfter: -time.Second, StoreTimeout: -time.Second,
		MaxFetches: -1, RangeSize: -1, RangeMemory: -1, Chunk: -1,
	}.withDefaults()
	none := Options{}.withDefaults()
	for _, o := range []*Options{&below, &none} {
		o.Sleep, o.Logger = nil, nil
	}
	if !reflect.DeepEqual(below, none) {
		t.Errorf("got %+v, want %+v", below, none)
	}
}
