;; A component that has another type for a function than WASI 0.2.
(component
  (import "wasi:cli/stdin@0.2.3" (instance $stdin (export "get-stdin" (func (result u64)))))
  (core module $main
    (import "host" "f" (func (result i64)))
    (func (export "run") (result i32) (i32.const 0)))
  (core func $f (canon lower (func $stdin "get-stdin")))
  (core instance $it (instantiate $main (with "host" (instance (export "f" (func $f))))))
  (func $run (result (result)) (canon lift (core func $it "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.3" (instance $exports)))
