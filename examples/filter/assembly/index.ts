// A filter in AssemblyScript: it copies text and masks what tells of people, mail addresses and IPv4 addresses.
//
//     npm ci && npm run build
//
// filter [-o FILE] [FILE...]
//
// Without a file it reads the standard input; -o writes to a file in place of the standard output, and must come first. The exit code is 1 if a file
// cannot be opened, 2 for a wrong command line. How many were masked goes to the standard error.
import {
  errno, errnoToString, fd_close, fd_prestat_get, fd_read, fd_write, lookupflags, oflags, path_open, prestat, rights,
} from "@assemblyscript/wasi-shim/assembly/bindings/wasi_snapshot_preview1";

const LINE_FEED: u8 = 10;
let masked = 0;

function fail(what: string, code: i32): void {
  process.stderr.write("filter: " + what + "\n");
  process.exit(code);
}

// check ends the program for what is not success.
function check(what: string, err: errno): void {
  if (err != errno.SUCCESS) fail(what + ": " + errnoToString(err), 1);
}

// root is the descriptor of "/": the first that was opened before the program, after the streams and listeners.
function root(): u32 {
  const stat = memory.data(8);
  for (let fd: u32 = 3; fd < 64; fd++) {
    if (fd_prestat_get(fd, changetype<prestat>(stat)) == errno.SUCCESS) return fd;
  }
  fail("there are no files", 1);
  return 0;
}

// open opens a path; relative ones mean the same as absolute ones.
function open(path: string, write: bool): u32 {
  const name = String.UTF8.encode(path.startsWith("/") ? path.substring(1) : path);
  const opened = memory.data(4);
  check(path, path_open(root(), lookupflags.SYMLINK_FOLLOW, changetype<usize>(name), name.byteLength,
    write ? oflags.CREAT | oflags.TRUNC : 0, write ? rights.FD_WRITE : rights.FD_READ, 0, 0, opened));
  return load<u32>(opened);
}

// send writes all bytes from..to of memory.
function send(fd: u32, from: usize, to: usize): void {
  const vector = memory.data(8), done = memory.data(4);
  while (from < to) {
    store<u32>(vector, from);
    store<u32>(vector, to - from, 4);
    check("write", fd_write(fd, vector, 1, done));
    from += load<u32>(done);
  }
}

// isWord says whether a byte belongs to what may be an address.
function isWord(c: u8): bool {
  return (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) ||
    c == 37 || c == 43 || c == 45 || c == 46 || c == 64 || c == 95; // % + - . @ _
}

// isMail: something, one @, and a domain with a dot in it.
function isMail(word: string): bool {
  const at = word.indexOf("@");
  if (at < 1 || word.indexOf("@", at + 1) >= 0) return false;
  const dot = word.indexOf(".", at);
  return dot > at + 1 && dot < word.length - 1;
}

// isAddress: four numbers up to 255.
function isAddress(word: string): bool {
  const parts = word.split(".");
  if (parts.length != 4) return false;
  for (let i = 0; i < 4; i++) {
    const part = parts[i];
    if (part.length < 1 || part.length > 3) return false;
    for (let k = 0; k < part.length; k++) {
      if (part.charCodeAt(k) < 48 || part.charCodeAt(k) > 57) return false;
    }
    if (I32.parseInt(part) > 255) return false;
  }
  return true;
}

function sendText(fd: u32, text: string): void {
  const bytes = String.UTF8.encode(text);
  send(fd, changetype<usize>(bytes), changetype<usize>(bytes) + bytes.byteLength);
}

// pass writes the lines from..to of memory, masked.
function pass(fd: u32, from: usize, to: usize): void {
  let kept = from; // what has not been written yet begins here
  for (let at = from; at < to;) {
    if (!isWord(load<u8>(at))) {
      at++;
      continue;
    }
    let end = at;
    while (end < to && isWord(load<u8>(end))) end++;
    let last = end; // a sentence ends with a dot, an address does not
    while (last > at && load<u8>(last - 1) == 46) last--;
    const word = String.UTF8.decodeUnsafe(at, last - at);
    const mail = isMail(word);
    if (mail || isAddress(word)) {
      send(fd, kept, at);
      sendText(fd, mail ? "[mail]" : "[address]");
      kept = last;
      masked++;
    }
    at = end;
  }
  send(fd, kept, to);
}

// filter reads to the end and passes whole lines on; a line of more than the buffer goes in parts.
function filter(from: u32, to: u32): void {
  const size: usize = 64 << 10;
  const buffer = heap.alloc(size), vector = memory.data(8), got = memory.data(4);
  let held: usize = 0;
  for (;;) {
    store<u32>(vector, buffer + held);
    store<u32>(vector, size - held, 4);
    check("read", fd_read(from, vector, 1, got));
    const n = load<u32>(got);
    held += n;
    let whole = held;
    if (n > 0 && held < size) {
      while (whole > 0 && load<u8>(buffer + whole - 1) != LINE_FEED) whole--;
    }
    pass(to, buffer, buffer + whole);
    memory.copy(buffer, buffer + whole, held - whole);
    held -= whole;
    if (n == 0) break;
  }
  heap.free(buffer);
}

function main(): void {
  const args = process.argv;
  let next = 1;
  let out: u32 = 1;
  if (args.length > next && args[next] == "-o") {
    if (args.length < 3) fail("-o needs a file", 2);
    out = open(args[2], true);
    next = 3;
  }
  if (next == args.length) filter(0, out);
  for (; next < args.length; next++) {
    const from = open(args[next], false);
    filter(from, out);
    fd_close(from);
  }
  if (out != 1) check("close", fd_close(out));
  process.stderr.write("filter: " + masked.toString() + " masked\n");
}

main();
