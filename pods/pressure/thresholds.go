package pressure

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is the least that is to be available: an amount, or a share of the total. The zero
// value is no threshold.
type Threshold struct {
	amount resource.Quantity
	share  float32 // as a kubelet's, so that its texts have the same numbers
}

// Thresholds are the hard ones by signal (EX1).
type Thresholds map[Signal]Threshold

// ParseThreshold reads an amount such as "100Mi" or a share such as "10%". "" and "0%" are none.
func ParseThreshold(text string) (Threshold, error) {
	if text == "" {
		return Threshold{}, nil
	}
	if number, percent := strings.CutSuffix(text, "%"); percent {
		value, err := strconv.ParseFloat(number, 32)
		if err != nil || !(value >= 0 && value < 100) {
			return Threshold{}, fmt.Errorf("%q is not a share from \"0%%\" to below \"100%%\"", text)
		}
		return Threshold{share: float32(value) / 100}, nil
	}
	amount, err := resource.ParseQuantity(text)
	if err != nil || amount.Sign() <= 0 {
		return Threshold{}, fmt.Errorf("%q is not an amount above 0, as \"100Mi\", nor a share, as \"10%%\"", text)
	}
	return Threshold{amount: amount}, nil
}

// smallMemory is below how many bytes of memory the default threshold of memory is a share.
const smallMemory = 2 << 30

// DefaultMemory is the default threshold of memory of a node with so many bytes (EX1).
func DefaultMemory(capacity int64) Threshold {
	if capacity < smallMemory {
		return Threshold{share: 0.05}
	}
	return Threshold{amount: resource.MustParse("100Mi")}
}

// none says that there is no threshold.
func (t Threshold) none() bool { return t.share == 0 && t.amount.IsZero() }

// of is the threshold on a node that has so much.
func (t Threshold) of(capacity int64) resource.Quantity {
	if t.share > 0 {
		return *resource.NewQuantity(int64(float64(capacity)*float64(t.share)), resource.BinarySI)
	}
	return t.amount
}

// Met are the signals of which less is available than the thresholds say, in the order in which
// they are acted on.
func (t Thresholds) Met(readings Readings) []Signal {
	var met []Signal
	for i := range signals {
		s := Signal(i)
		r, measured := readings[s]
		threshold := t[s]
		if !measured || threshold.none() {
			continue
		}
		if least := threshold.of(r.Capacity); least.CmpInt64(r.Available) > 0 {
			met = append(met, s)
		}
	}
	return met
}

// Any says whether there is a threshold at all.
func (t Thresholds) Any() bool {
	for _, one := range t {
		if !one.none() {
			return true
		}
	}
	return false
}
