package rustname

import (
	"strings"
	"testing"
)

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		// Legacy.
		"_ZN4core9panicking5panic17h0123456789abcdefE":                                                         "core::panicking::panic",
		"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE": "<Test + 'static as foo::Bar<Test>>::bar",
		"_ZN28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.1234":                                      "{{closure}}",
		"_ZN3app4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.1234":                             "app::main::{{closure}}",
		// Version 0: RFC 2603 and rustc-demangle's own tests.
		"_RNvCskwGfYPst2Cb_3foo16example_function":                          "foo::example_function",
		"_RNvC6_123foo3bar":                                                 "123foo::bar",
		"_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y": "utf8_idents::საჭმელად_გემრიელი_სადილი",
		"_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_":                              "cc::spawn::{closure#0}::{closure#0}",
		"_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_6memchr7memrchrs_0E0Bb_": "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::<core::slice::memchr::memrchr::{closure#1}>::{closure#0}",
		"_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std":                               "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
		"_RNvMC0INtC8arrayvec8ArrayVechKj7b_E3new":             "<arrayvec::ArrayVec<u8, 123>>::new",
		"_RINtC8arrayvec8ArrayVechKj7b_E":                      "arrayvec::ArrayVec::<u8, 123>",
		"_RMCs4fqI2P2rA04_13const_genericINtB0_8UnsignedKhb_E": "<const_generic::Unsigned<11>>",
		"_RMCs4fqI2P2rA04_13const_genericINtB0_6SignedKsn98_E": "<const_generic::Signed<-152>>",
		"_RMCs4fqI2P2rA04_13const_genericINtB0_4BoolKb1_E":     "<const_generic::Bool<true>>",
		"_RMCs4fqI2P2rA04_13const_genericINtB0_4CharKc76_E":    "<const_generic::Char<'v'>>",
		"_RNvNvC3foo3bar3baz.llvm.123":                         "foo::bar::baz",
		"_RINvC1a1fFG_RL0_hERShE":                              "a::f::<for<'a> fn(&'a u8) -> &[u8]>",
		"_RINvC1a1fTlEAtj3_QeE":                                "a::f::<(i32,), [u16; 3], &mut str>",
		// Others.
		"_ZN3foo3barEv": "_ZN3foo3barEv", "main": "main", "": "", "_R": "_R", "_RNvC": "_RNvC", "_ZN": "_ZN", "_ZN17h0123456789abcdefE": "_ZN17h0123456789abcdefE",
		"_RNvB_1a": "_RNvB_1a", "_ZN99999999999999999999aE": "_ZN99999999999999999999aE",
	} {
		if got := Demangle(name); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// What a stranger names a function neither takes long nor becomes long.
func TestBounds(t *testing.T) {
	bomb := "_RINvC1a1f" + "TTT" + strings.Repeat("B9_", 600) + "EEEE"
	for _, name := range []string{bomb, "_R" + strings.Repeat("Nv", 900) + "C1a", "_RINvC1a1f" + strings.Repeat("R", 1900) + "hE", "_RNvC1a" + strings.Repeat("9", 1500), "_ZN2000a17h0123456789abcdefE",
		"_RINvC1a1fTuuE" + strings.Repeat("TBa_BaE", 20) + "E"} {
		if got := Demangle(name); len(got) > maxLength {
			t.Errorf("%.40s… becomes %d bytes", name, len(got))
		}
	}
}

func FuzzDemangle(f *testing.F) {
	f.Add("_RNvC6_123foo3bar")
	f.Add("_ZN4core9panicking5panic17h0123456789abcdefE")
	f.Fuzz(func(t *testing.T, name string) {
		if got := Demangle(name); got != name && len(got) > maxLength {
			t.Errorf("%q becomes %d bytes", name, len(got))
		}
	})
}
