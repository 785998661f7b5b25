package units

import "testing"

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 13<<20 + 200<<10: "13.2 MiB", 3 << 30: "3.0 GiB", 2 << 40: "2.0 TiB", -3 << 20: "-3.0 MiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
