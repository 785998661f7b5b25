;; refused: exception handling
;; Exceptions.
(component
  (import "wasi:cli/exit@0.2.12" (instance $exit (export "exit-with-code" (func (param "status-code" u8)))))
  (core func $end (canon lower (func $exit "exit-with-code")))
  (core instance $host (export "end" (func $end)))
  (core module $m
    (import "host" "end" (func $end (param i32)))
    (tag $e)
    (func (export "run") (result i32)
      (block $caught (try_table (catch $e $caught) (throw $e)))
      (i32.const 0)))
  (core instance $main (instantiate $m (with "host" (instance $host))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exports (export "run" (func $run)))
  (export "wasi:cli/run@0.2.12" (instance $exports)))
