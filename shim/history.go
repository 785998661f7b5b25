package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/keeper"
)

// keptHistory is the key of what earlier shims have done of the history. It has no slash: it is no container's.
const keptHistory = "history"

// recall is the history up to this shim. One whose note cannot be read begins anew.
func recall(left []keeper.Kept, life int) (h api.History) {
	for _, k := range left {
		if k.Key == keptHistory && json.Unmarshal(k.Note, &h) != nil {
			h = api.History{}
		}
	}
	h.Shims = life
	return h
}

// recordHistory leaves the history to a successor.
func (s *Service) recordHistory() error {
	if s.history == (api.History{Shims: 1}) {
		return nil
	}
	note, err := json.Marshal(s.history)
	if err != nil {
		return err
	}
	return s.options.Keeper.Keep(keptHistory, note)
}

// tellHistory answers with the history. It does not change while the service answers.
func (s *Service) tellHistory(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if s.options.Keeper == nil {
		return nil, fmt.Errorf("shim has no history: it has no keeper: %w", errdefs.ErrFailedPrecondition)
	}
	text, err := json.Marshal(s.history)
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}
