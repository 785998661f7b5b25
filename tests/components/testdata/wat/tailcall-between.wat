;; exit 9
;; A tail call from one core module into another.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $first
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1))))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (import "first" "add" (func $add (param i32 i32) (result i32)))
    (func $nine (result i32) (return_call $add (i32.const 4) (i32.const 5)))
    (func (export "run") (result i32) (call $end (call $nine)) (i32.const 0)))
  (core instance $one (instantiate $first))
  (core instance $main (instantiate $m (with "host" (instance $host)) (with "first" (instance $one))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
