package shim

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// tellHistory answers with the history. It does not change while the service answers.
func (s *Service) tellHistory(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	if s.handoff == nil {
		return nil, fmt.Errorf("shim has no history: it has no supervisor: %w", errdefs.ErrFailedPrecondition)
	}
	text, err := json.Marshal(s.history)
	if err != nil {
		return nil, err
	}
	return wrapperspb.String(string(text)), nil
}
