package measure

import "testing"

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{
		"0": Duration(0), "85 µs": Duration(0.085), "999 µs": Duration(0.999), "1 ms": Duration(0.9996), "1.23 ms": Duration(1.234),
		"12.3 ms": Duration(12.34), "100 ms": Duration(99.96), "999 ms": Duration(999.4), "1 s": Duration(999.6), "45.6 s": Duration(45600),
		"3.5 min": Duration(210_000), "24 h": Duration(86_400_000),
		"0.25": Number(0.25), "17.5": Number(17.5), "100": Number(100), "999": Number(999.4), "1,000": Number(999.6),
		"12,345": Number(12345), "1,234,567": Number(1234567), "-1,234": Number(-1234), "-2.5": Number(-2.5),
		"0:07": Clock(7.4), "12:30": Clock(750), "1:02:03": Clock(3723),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
