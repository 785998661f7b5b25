;; exit 69
;; Constants that are computed: of a global, of where data lies, and of where elements lie.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (memory 1)
    (table 4 funcref)
    (global $base i32 (i32.const 7))
    (global $computed i32 (i32.add (global.get $base) (i32.mul (i32.const 5) (i32.const 4))))
    (data (offset (i32.add (global.get $base) (i32.const 1))) "\2a")
    (elem (offset (i32.sub (i32.const 5) (i32.const 2))) func $load)
    (func $load (result i32) (i32.load8_u (i32.const 8)))
    (func (export "run") (result i32)
      (call $end (i32.add (global.get $computed) (call_indirect (result i32) (i32.const 3))))
      (i32.const 0)))
  (core instance $main (instantiate $m (with "host" (instance $host))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
