package version

import (
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

func TestVersionIsSemantic(t *testing.T) {
	for stamp, want := range map[string]string{
		"":                                "0.1.0-dev",
		"(devel)":                         "0.1.0-dev",
		"unknown":                         "0.1.0-dev+unknown",
		"404f042":                         "0.1.0-dev+404f042",
		"0123456":                         "0.1.0-dev+0123456",
		"404f042.dirty":                   "0.1.0-dev+404f042.dirty",
		"404f042-dirty":                   "0.1.0-dev+404f042-dirty",
		"Debian 12":                       "0.1.0-dev+Debian.12",
		"1.2":                             "0.1.0-dev+1.2",
		"1.02.3":                          "0.1.0-dev+1.02.3",
		"1.2.3-01":                        "0.1.0-dev+1.2.3-01",
		"1.2.3-":                          "0.1.0-dev+1.2.3-",
		"1.2.3+":                          "0.1.0-dev+1.2.3",
		"a..b/:c":                         "0.1.0-dev+a.b.c",
		"../..":                           "0.1.0-dev",
		"v0.2.0":                          "0.2.0",
		"0.2.0":                           "0.2.0",
		"v0.2.0+dirty":                    "0.2.0+dirty",
		"v0.2.0+001":                      "0.2.0+001",
		"v0.2.0-rc.1":                     "0.2.0-rc.1",
		"v0.2.0-5-g404f042":               "0.2.0-5-g404f042",
		"v0.0.0-20261122165726-404f042ab": "0.0.0-20261122165726-404f042ab", // as Go writes an untagged commit
	} {
		got := of(stamp)
		if got != want {
			t.Errorf("of %q: %q, want %q", stamp, got, want)
		}
		if v, err := utilversion.ParseSemantic(got); err != nil || v.String() != got { // as the kubelet does
			t.Errorf("of %q: the kubelet reads %q as %v: %v", stamp, got, v, err)
		}
	}
	if v := String(); !semantic(v) {
		t.Errorf("this is %q", v)
	}
}
