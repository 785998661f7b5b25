;; exit 64
;; A million tail calls, direct ones and through a table, need no stack.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (type $step (func (param i32 i32) (result i32)))
    (table 1 funcref)
    (elem (i32.const 0) $odd)
    (func $even (type $step)
      (if (i32.eqz (local.get 0)) (then (return (local.get 1))))
      (return_call_indirect (type $step) (i32.sub (local.get 0) (i32.const 1)) (i32.add (local.get 1) (i32.const 1)) (i32.const 0)))
    (func $odd (type $step)
      (if (i32.eqz (local.get 0)) (then (return (local.get 1))))
      (return_call $even (i32.sub (local.get 0) (i32.const 1)) (i32.add (local.get 1) (i32.const 1))))
    (func (export "run") (result i32)
      (call $end (i32.and (call $even (i32.const 1000000) (i32.const 0)) (i32.const 255)))
      (i32.const 0)))
  (core instance $main (instantiate $m (with "host" (instance $host))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
