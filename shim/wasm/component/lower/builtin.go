package lower

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/component/merge"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// builtIn is the canonical built-in that an import is bound to.
func (l *lowerer) builtIn(b component.Bound) (merge.Source, error) {
	h, c := b.Host, b.Host.Canon
	if h.Options.Encoding != component.UTF8 {
		return nil, refusal("it uses %s with strings that are not UTF-8", h.Op)
	}
	name := async.Name{Op: h.Op.String(), Async: h.Options.Async || c.Async, Slot: c.Slot}
	switch {
	case h.Op >= component.StreamNew && h.Op <= component.FutureDropWritable:
		element, err := element(c)
		if err != nil {
			return nil, err
		}
		name.Element = element
	case h.Op == component.TaskReturn:
		for _, v := range b.Params {
			switch v {
			case api.ValueTypeI32:
				name.Flat += "i"
			case api.ValueTypeI64:
				name.Flat += "I"
			default:
				return nil, refusal("it uses %s of numbers with a point", h.Op)
			}
		}
	}
	function, err := canonical.Find(canonical.BuiltIns, name.String(), async.World())
	if err != nil {
		return nil, refusal("it uses %s, which is not served", h.Op)
	}
	signature := function.Signature()
	switch {
	case string(signature.Params) != string(b.Params) || string(signature.Results) != string(b.Results):
		return nil, refusal("it imports %s with another signature than it has", h.Op)
	case signature.Realloc && h.Options.Realloc == nil:
		return nil, refusal("it uses %s without the option realloc", h.Op)
	}
	var options canonical.Options
	if h.Options.Realloc != nil {
		options.Realloc = l.realloc(*h.Options.Realloc)
	}
	return merge.Host{
		Module: canonical.BuiltIns, Name: canonical.ImportName(name.String(), options),
		Type: format.FuncType{Params: b.Params, Results: b.Results},
	}, nil
}

// element is what the values of a stream or future are.
func element(c *component.Canon) (*async.Element, error) {
	if c.Type.Kind != component.Stream && c.Type.Kind != component.Future {
		return nil, refusal("it uses %s for a %s", c.Op, c.Type.Kind)
	}
	of := c.Type.Of
	if of == nil {
		nothing := async.Nothing
		return &nothing, nil
	}
	layout := of.Layout()
	if layout.Size > async.MaxElement {
		return nil, refusal("it uses %s for values of %d bytes, and %d are accepted", c.Op, layout.Size, async.MaxElement)
	}
	return &async.Element{Size: uint32(layout.Size), Align: uint32(layout.Align), Number: of.IsNumber()}, nil
}
