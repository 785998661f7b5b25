package handoff

import (
	"encoding/json"

	"github.com/sunaba-project/sunaba/shim/api"
)

// History returns the history up to this shim. If the note of it cannot be read, it starts anew.
func (h *Handoff) History() (history api.History) {
	if h == nil {
		return api.History{}
	}
	for _, k := range h.to.Left() {
		if k.Key == keyHistory && json.Unmarshal(k.Note, &history) != nil {
			history = api.History{}
		}
	}
	history.Shims = h.to.Life()
	return history
}

// KeepHistory leaves the history to a successor.
func (h *Handoff) KeepHistory(history api.History) error {
	if history == (api.History{Shims: 1}) {
		return nil
	}
	note, err := json.Marshal(history)
	if err != nil {
		return err
	}
	return h.keep(keyHistory, note)
}
