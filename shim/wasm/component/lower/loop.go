package lower

import (
	"github.com/sunaba-project/sunaba/shim/wasm/async"
)

// looper is a core module that exports _start for an asynchronous run, or HandlerName for an
// asynchronous handle: it calls "run" or "handle" and then, as long as its answer says that it
// continues, "callback" with the next event. In the end _start calls "exit" with an error if the
// task has returned one; what a handle has returned the host was told by task.return.
func looper(entry string) []byte {
	const (
		i32        = 0x7f
		i64        = 0x7e
		form       = 0x60
		runType    = 0 // [] -> [i32], that of finish too
		backType   = 1 // [i32 i32 i32] -> [i32]
		nextType   = 2 // [i32] -> [i64]
		exitType   = 3 // [i32] -> []
		startType  = 4 // [] -> []
		handleType = 5 // [i32] -> [i32]
		run        = 0 // functions, in the order of imports; or handle
		callback   = 1
		next       = 2
		finish     = 3
		exit       = 4
		opTrap     = 0x00
		opBlock    = 0x02
		opLoop     = 0x03
		opIf       = 0x04
		opEnd      = 0x0b
		opBranch   = 0x0c
		opBranchIf = 0x0d
		opCall     = 0x10
		opLocalGet = 0x20
		opLocalSet = 0x21
		opConst32  = 0x41
		opConst64  = 0x42
		opZero     = 0x45 // i32.eqz
		opGreater  = 0x4b // i32.gt_u
		opAnd      = 0x71 // i32.and
		opShift    = 0x88 // i64.shr_u
		opWrap     = 0xa7 // i32.wrap_i64
		noResult   = 0x40
		codeShift  = 60
		indexShift = 32
		codeMask   = 0x0f
	)
	packed, event := byte(0), byte(1) // locals, behind the parameters
	runs, as, exported := byte(runType), startName, byte(startType)
	body := []byte{2, 1, i32, 1, i64}
	if entry == handleName {
		packed, event = 1, 2
		runs, as, exported = handleType, HandlerName, exitType
		body = append(body, opLocalGet, 0)
	}
	body = append(body,
		opCall, run, opLocalSet, packed,
		opBlock, noResult, opLoop, noResult,
		opLocalGet, packed, opConst32, codeMask, opAnd, opZero, opBranchIf, 1,
		opLocalGet, packed, opCall, next, opLocalSet, event,
		opLocalGet, event, opConst64, codeShift, opShift, opWrap)
	// The index has 28 bits: what is above them is the code.
	body = append(body, opLocalGet, event, opConst64, indexShift, opShift, opWrap, opConst32)
	body = append(body, 0xff, 0xff, 0xff, 0xff, 0x00) // 1<<28 - 1
	body = append(body, opAnd, opLocalGet, event, opWrap, opCall, callback, opLocalSet, packed)
	body = append(body, opBranch, 0, opEnd, opEnd)
	body = append(body, opCall, finish, opLocalSet, packed)
	imports := [][]byte{
		function(entry, runs), function(callbackName, backType), function(async.Next, nextType), function(async.Finish, runType),
	}
	if entry != handleName {
		imports = append(imports, function(exitName, exitType))
		body = append(body, opLocalGet, packed, opConst32, 1, opGreater, opIf, noResult, opTrap, opEnd)
		body = append(body, opLocalGet, packed, opIf, noResult, opConst32, 1, opCall, exit, opEnd)
	}
	body = append(body, opEnd)
	types := [][]byte{{form, 0, 1, i32}, {form, 3, i32, i32, i32, 1, i32}, {form, 1, i32, 1, i64}, {form, 1, i32, 0}, {form, 0, 0}, {form, 1, i32, 1, i32}}
	return caller(types, imports, as, exported, body)
}
