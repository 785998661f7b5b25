;; exit 60
;; A memory of one module, used by another: segments, copies, a growth that both see.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $first
    (memory (export "memory") 1 4)
    (data (i32.const 16) "\0a\0b")
    (func (export "size") (result i32) (memory.size)))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (import "first" "memory" (memory 1))
    (import "first" "size" (func $size (result i32)))
    (data (i32.const 18) "\0c")
    (data $passive "\00\0d\0e")
    (func (export "run") (result i32)
      (memory.init $passive (i32.const 19) (i32.const 1) (i32.const 2))
      (data.drop $passive)
      (memory.copy (i32.const 100) (i32.const 16) (i32.const 5))
      (memory.fill (i32.const 100) (i32.const 7) (i32.const 1))
      (drop (memory.grow (i32.const 2)))
      (call $end (i32.add (call $size) (i32.add
        (i32.add (i32.load8_u (i32.const 100)) (i32.load8_u (i32.const 101)))
        (i32.add (i32.load8_u (i32.const 102)) (i32.add (i32.load8_u (i32.const 103)) (i32.load8_u (i32.const 104)))))))
      (i32.const 0)))
  (core instance $one (instantiate $first))
  (core instance $main (instantiate $m (with "host" (instance $host)) (with "first" (instance $one))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
