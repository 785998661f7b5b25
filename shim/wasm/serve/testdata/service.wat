;; An HTTP service of WASI 0.3. The first letter of the path says what it does with a request:
;;
;;   /hello    a text and a trailer              /unread   a text, and the body is not read
;;   /echo     the request's body and trailers   /open     returns while its body is still open
;;   /trap     traps before it returns           /late     traps after a part of the body
;;   /nothing  ends without a response           /restless returns twice
;;   /failed   returns an error-code             /sleep    waits for an hour
;;   /abort    its trailers are an error         /pass     as /echo, through a request of its own
;;   /count    how many requests it has had      /big      4 MiB
;;   /give     as /echo, and waits for the request's trailers when its own body is being sent
;;   /wait     waits for the trailers of a body that nobody reads
;;   /known    the same after it has dropped the stream of the body
(component
  (import "wasi:http/types@0.3.0" (instance $types
    (export "fields" (type $fields (sub resource)))
    (export "request" (type $request (sub resource)))
    (export "request-options" (type $options (sub resource)))
    (export "response" (type $response (sub resource)))
    (type $dns' (record (field "rcode" (option string)) (field "info-code" (option u16))))
    (export "DNS-error-payload" (type $dns (eq $dns')))
    (type $alert' (record (field "alert-id" (option u8)) (field "alert-message" (option string))))
    (export "TLS-alert-received-payload" (type $alert (eq $alert')))
    (type $size' (record (field "field-name" (option string)) (field "field-size" (option u32))))
    (export "field-size-payload" (type $size (eq $size')))
    (type $code' (variant
      (case "DNS-timeout") (case "DNS-error" $dns) (case "destination-not-found") (case "destination-unavailable")
      (case "destination-IP-prohibited") (case "destination-IP-unroutable") (case "connection-refused") (case "connection-terminated")
      (case "connection-timeout") (case "connection-read-timeout") (case "connection-write-timeout") (case "connection-limit-reached")
      (case "TLS-protocol-error") (case "TLS-certificate-error") (case "TLS-alert-received" $alert) (case "HTTP-request-denied")
      (case "HTTP-request-length-required") (case "HTTP-request-body-size" (option u64)) (case "HTTP-request-method-invalid")
      (case "HTTP-request-URI-invalid") (case "HTTP-request-URI-too-long") (case "HTTP-request-header-section-size" (option u32))
      (case "HTTP-request-header-size" (option $size)) (case "HTTP-request-trailer-section-size" (option u32))
      (case "HTTP-request-trailer-size" $size) (case "HTTP-response-incomplete") (case "HTTP-response-header-section-size" (option u32))
      (case "HTTP-response-header-size" $size) (case "HTTP-response-body-size" (option u64))
      (case "HTTP-response-trailer-section-size" (option u32)) (case "HTTP-response-trailer-size" $size)
      (case "HTTP-response-transfer-coding" (option string)) (case "HTTP-response-content-coding" (option string))
      (case "HTTP-response-timeout") (case "HTTP-upgrade-failed") (case "HTTP-protocol-error") (case "loop-detected")
      (case "configuration-error") (case "internal-error" (option string))))
    (export "error-code" (type $code (eq $code')))
    (type $field-error' (variant
      (case "invalid-syntax") (case "forbidden") (case "immutable") (case "size-exceeded") (case "other" (option string))))
    (export "header-error" (type $field-error (eq $field-error')))
    (type $bytes (stream u8))
    (type $end (future (result (option (own $fields)) (error $code))))
    (type $sent (future (result (error $code))))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[method]fields.append" (func (param "self" (borrow $fields)) (param "name" string) (param "value" (list u8)) (result (result (error $field-error)))))
    (export "[static]request.new" (func (param "headers" (own $fields)) (param "contents" (option $bytes)) (param "trailers" $end) (param "options" (option (own $options))) (result (tuple (own $request) $sent))))
    (export "[method]request.get-path-with-query" (func (param "self" (borrow $request)) (result (option string))))
    (export "[static]request.consume-body" (func (param "this" (own $request)) (param "res" $sent) (result (tuple $bytes $end))))
    (export "[static]response.new" (func (param "headers" (own $fields)) (param "contents" (option $bytes)) (param "trailers" $end) (result (tuple (own $response) $sent))))))
  (import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
    (export "wait-for" (func async (param "how-long" u64)))))
  (alias export $types "fields" (type $fields))
  (alias export $types "request" (type $request))
  (alias export $types "response" (type $response))
  (alias export $types "error-code" (type $code))
  (type $bytes (stream u8))
  (type $end (future (result (option (own $fields)) (error $code))))
  (type $sent (future (result (error $code))))
  (type $answer (result (own $response) (error $code)))

  (core module $memory
    (memory (export "memory") 2)
    (global $next (mut i32) (i32.const 4096))
    (data (i32.const 1024) "hello\0ax-endyestrailerX-End")
    (func (export "realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get $new)))
      (local.get $at)))
  (core instance $memory (instantiate $memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "realloc" (core func $realloc))

  (core func $fields (canon lower (func $types "[constructor]fields")))
  (core func $append (canon lower (func $types "[method]fields.append") (memory $mem) (realloc (core func $realloc))))
  (core func $new-request (canon lower (func $types "[static]request.new") (memory $mem)))
  (core func $path (canon lower (func $types "[method]request.get-path-with-query") (memory $mem) (realloc (core func $realloc))))
  (core func $consume (canon lower (func $types "[static]request.consume-body") (memory $mem)))
  (core func $new-response (canon lower (func $types "[static]response.new") (memory $mem)))
  (core func $drop-request (canon resource.drop $request))
  (core func $wait-for (canon lower (func $clock "wait-for")))
  (core func $bytes-new (canon stream.new $bytes))
  (core func $bytes-write (canon stream.write $bytes (memory $mem)))
  (core func $bytes-drop (canon stream.drop-writable $bytes))
  (core func $end-new (canon future.new $end))
  (core func $end-write (canon future.write $end (memory $mem)))
  (core func $end-read (canon future.read $end (memory $mem) (realloc (core func $realloc))))
  (core func $bytes-leave (canon stream.drop-readable $bytes))
  (core func $end-drop (canon future.drop-writable $end))
  (core func $sent-new (canon future.new $sent))
  (core func $sent-write (canon future.write $sent (memory $mem)))
  (core func $sent-drop (canon future.drop-writable $sent))
  (core func $return (canon task.return (result $answer) (memory $mem)))

  (core module $main
    (import "" "memory" (memory 2))
    (import "" "fields" (func $fields (result i32)))
    (import "" "append" (func $append (param i32 i32 i32 i32 i32 i32)))
    (import "" "new-request" (func $new-request (param i32 i32 i32 i32 i32 i32 i32)))
    (import "" "path" (func $path (param i32 i32)))
    (import "" "consume" (func $consume (param i32 i32 i32)))
    (import "" "new-response" (func $new-response (param i32 i32 i32 i32 i32)))
    (import "" "drop-request" (func $drop-request (param i32)))
    (import "" "wait-for" (func $wait-for (param i64)))
    (import "" "bytes-new" (func $bytes-new (result i64)))
    (import "" "bytes-write" (func $bytes-write (param i32 i32 i32) (result i32)))
    (import "" "bytes-drop" (func $bytes-drop (param i32)))
    (import "" "end-new" (func $end-new (result i64)))
    (import "" "end-write" (func $end-write (param i32 i32) (result i32)))
    (import "" "end-read" (func $end-read (param i32 i32) (result i32)))
    (import "" "bytes-leave" (func $bytes-leave (param i32)))
    (import "" "end-drop" (func $end-drop (param i32)))
    (import "" "sent-new" (func $sent-new (result i64)))
    (import "" "sent-write" (func $sent-write (param i32 i32) (result i32)))
    (import "" "sent-drop" (func $sent-drop (param i32)))
    (import "" "return" (func $return (param i32 i32 i32 i64 i32 i32 i32 i32)))
    (global $count (mut i32) (i32.const 0))
    (global $body (mut i32) (i32.const 0))   ;; writable ends of the response
    (global $end (mut i32) (i32.const 0))

    ;; Returns a response with these contents, 0 for none.
    (func $respond (param $headers i32) (param $body i32) (param $end i32)
      (call $new-response (local.get $headers) (i32.ne (local.get $body) (i32.const 0)) (local.get $body) (local.get $end) (i32.const 64))
      (call $return (i32.const 0) (i32.load (i32.const 64)) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))

    ;; Returns a response whose body and trailers are written afterwards.
    (func $open (param $headers i32)
      (local $b i64) (local $e i64)
      (local.set $b (call $bytes-new))
      (local.set $e (call $end-new))
      (global.set $body (i32.wrap_i64 (i64.shr_u (local.get $b) (i64.const 32))))
      (global.set $end (i32.wrap_i64 (i64.shr_u (local.get $e) (i64.const 32))))
      (call $respond (local.get $headers) (i32.wrap_i64 (local.get $b)) (i32.wrap_i64 (local.get $e))))

    ;; Writes bytes, until the reader has all.
    (func $write (param $at i32) (param $n i32)
      (local $got i32)
      (loop $more
        (local.set $got (call $bytes-write (global.get $body) (local.get $at) (local.get $n)))
        (if (i32.and (local.get $got) (i32.const 15)) (then (return)))
        (local.set $got (i32.shr_u (local.get $got) (i32.const 4)))
        (local.set $at (i32.add (local.get $at) (local.get $got)))
        (local.set $n (i32.sub (local.get $n) (local.get $got)))
        (br_if $more (local.get $n))))

    ;; Ends body and trailers: with the value at 256.
    (func $finish
      (call $bytes-drop (global.get $body))
      (drop (call $end-write (global.get $end) (i32.const 256)))
      (call $end-drop (global.get $end)))

    ;; The readable ends of a request's body and trailers, at 64 and 68.
    (func $take (param $request i32)
      (local $s i64) (local $w i32)
      (local.set $s (call $sent-new))
      (local.set $w (i32.wrap_i64 (i64.shr_u (local.get $s) (i64.const 32))))
      (call $consume (local.get $request) (i32.wrap_i64 (local.get $s)) (i32.const 64))
      (drop (call $sent-write (local.get $w) (i32.const 256)))
      (call $sent-drop (local.get $w)))

    (func (export "handle") (param $request i32) (result i32)
      (local $what i32) (local $headers i32) (local $n i32) (local $trailers i32) (local $e i64)
      (global.set $count (i32.add (global.get $count) (i32.const 1)))
      (i64.store (i32.const 256) (i64.const 0)) ;; none of what another request has left
      (i64.store (i32.const 264) (i64.const 0))
      (i32.store8 (i32.const 1024) (i32.const 0x68))
      (call $path (local.get $request) (i32.const 16))
      (local.set $what (i32.load8_u (i32.add (i32.load (i32.const 20)) (i32.const 1))))
      (if (i32.eq (local.get $what) (i32.const 0x74)) (then unreachable)) ;; t
      (if (i32.eq (local.get $what) (i32.const 0x6e)) (then (return (i32.const 0)))) ;; n
      (if (i32.eq (local.get $what) (i32.const 0x73)) (then (call $wait-for (i64.const 3600000000000)))) ;; s
      (if (i32.eq (local.get $what) (i32.const 0x66)) ;; f: connection-refused
        (then
          (call $return (i32.const 1) (i32.const 6) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
          (return (i32.const 0))))
      (local.set $headers (call $fields))
      (if (i32.eq (local.get $what) (i32.const 0x65)) ;; e
        (then
          (call $take (local.get $request))
          (call $respond (local.get $headers) (i32.load (i32.const 64)) (i32.load (i32.const 68)))
          (return (i32.const 0))))
      (if (i32.eq (local.get $what) (i32.const 0x67)) ;; g
        (then
          (call $take (local.get $request))
          (local.set $trailers (i32.load (i32.const 68)))
          (local.set $e (call $end-new))
          (global.set $end (i32.wrap_i64 (i64.shr_u (local.get $e) (i64.const 32))))
          (call $respond (local.get $headers) (i32.load (i32.const 64)) (i32.wrap_i64 (local.get $e)))
          (drop (call $end-read (local.get $trailers) (i32.const 256)))
          (drop (call $end-write (global.get $end) (i32.const 256)))
          (call $end-drop (global.get $end))
          (return (i32.const 0))))
      (if (i32.or (i32.eq (local.get $what) (i32.const 0x77)) (i32.eq (local.get $what) (i32.const 0x6b))) ;; w, k
        (then
          (call $take (local.get $request))
          (local.set $trailers (i32.load (i32.const 68)))
          (if (i32.eq (local.get $what) (i32.const 0x6b)) (then (call $bytes-leave (i32.load (i32.const 64)))))
          (drop (call $end-read (local.get $trailers) (i32.const 512)))
          (call $open (local.get $headers))
          (call $write (i32.const 1024) (i32.const 6))
          (call $finish)
          (return (i32.const 0))))
      (if (i32.eq (local.get $what) (i32.const 0x70)) ;; p
        (then
          (call $take (local.get $request))
          (call $new-request (call $fields) (i32.const 1) (i32.load (i32.const 64)) (i32.load (i32.const 68)) (i32.const 0) (i32.const 0) (i32.const 64))
          (call $take (i32.load (i32.const 64)))
          (call $respond (local.get $headers) (i32.load (i32.const 64)) (i32.load (i32.const 68)))
          (return (i32.const 0))))
      (if (i32.ne (local.get $what) (i32.const 0x75)) (then (call $drop-request (local.get $request)))) ;; u
      (if (i32.eq (local.get $what) (i32.const 0x68)) ;; h
        (then
          (call $append (local.get $headers) (i32.const 1038) (i32.const 7) (i32.const 1045) (i32.const 5) (i32.const 96)) ;; trailer: X-End
          (local.set $trailers (call $fields))
          (call $append (local.get $trailers) (i32.const 1030) (i32.const 5) (i32.const 1035) (i32.const 3) (i32.const 96))
          (i32.store (i32.const 264) (i32.const 1))
          (i32.store (i32.const 268) (local.get $trailers))))
      (call $open (local.get $headers))
      (if (i32.eq (local.get $what) (i32.const 0x63)) ;; c
        (then (i32.store8 (i32.const 1024) (i32.add (i32.const 0x30) (global.get $count)))))
      (if (i32.eq (local.get $what) (i32.const 0x62)) ;; b
        (then
          (local.set $n (i32.const 64))
          (loop $more
            (call $write (i32.const 65536) (i32.const 65536))
            (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
        (else (call $write (i32.const 1024) (i32.const 6))))
      (if (i32.eq (local.get $what) (i32.const 0x6f)) (then (return (i32.const 0)))) ;; o
      (if (i32.eq (local.get $what) (i32.const 0x6c)) (then unreachable)) ;; l
      (if (i32.eq (local.get $what) (i32.const 0x61)) ;; a: connection-refused
        (then (i32.store (i32.const 256) (i32.const 1)) (i32.store (i32.const 264) (i32.const 6))))
      (call $finish)
      (if (i32.eq (local.get $what) (i32.const 0x72)) ;; r
        (then (call $open (call $fields))))
      (i32.const 0))

    (func (export "callback") (param i32 i32 i32) (result i32) unreachable))
  (core instance $main (instantiate $main (with "" (instance
    (export "memory" (memory $mem))
    (export "fields" (func $fields)) (export "append" (func $append)) (export "new-request" (func $new-request))
    (export "path" (func $path)) (export "consume" (func $consume)) (export "new-response" (func $new-response))
    (export "drop-request" (func $drop-request)) (export "wait-for" (func $wait-for))
    (export "bytes-new" (func $bytes-new)) (export "bytes-write" (func $bytes-write)) (export "bytes-drop" (func $bytes-drop))
    (export "end-new" (func $end-new)) (export "end-write" (func $end-write)) (export "end-drop" (func $end-drop)) (export "end-read" (func $end-read)) (export "bytes-leave" (func $bytes-leave))
    (export "sent-new" (func $sent-new)) (export "sent-write" (func $sent-write)) (export "sent-drop" (func $sent-drop))
    (export "return" (func $return))))))
  (func $handle async (param "request" (own $request)) (result $answer)
    (canon lift (core func $main "handle") (memory $mem) async (callback (core func $main "callback"))))
  (instance $exported (export "handle" (func $handle)))
  (export "wasi:http/handler@0.3.0" (instance $exported)))
