;; exit 27
;; Start functions run in the order of the instances: each appends a digit to the base of 4.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $first
    (global $log (export "log") (mut i32) (i32.const 0))
    (func $start (global.set $log (i32.add (i32.mul (global.get $log) (i32.const 4)) (i32.const 1))))
    (start $start))
  (core module $second
    (import "first" "log" (global $log (mut i32)))
    (func $start (global.set $log (i32.add (i32.mul (global.get $log) (i32.const 4)) (i32.const 2))))
    (start $start))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (import "first" "log" (global $log (mut i32)))
    (func $start (global.set $log (i32.add (i32.mul (global.get $log) (i32.const 4)) (i32.const 3))))
    (start $start)
    (func (export "run") (result i32) (call $end (global.get $log)) (i32.const 0)))
  (core instance $one (instantiate $first))
  (core instance $two (instantiate $second (with "first" (instance $one))))
  (core instance $main (instantiate $m (with "host" (instance $host)) (with "first" (instance $one))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
