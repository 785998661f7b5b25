package nearest

import "testing"

func TestOf(t *testing.T) {
	known := []string{"command", "image", "imagePullPolicy", "env", "ps"}
	for wrong, want := range map[string]string{
		"comand": "command", "Command": "command", "imag": "image", "pull": "", "x": "", "pss": "ps", "enviroment": "", "imagepullpolicy": "imagePullPolicy",
	} {
		if got := Of(wrong, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", wrong, got, want)
		}
	}
}
