#!/bin/sh
# Installs the Debian packages that the tests, the demo and the benchmark need, and those of its arguments (each
# PROGRAM-OR-FILE:PACKAGE), or says what is missing.
# Does nothing when all is there. Needs root; never touches anything but apt.
#
#	setup.sh [PROGRAM:PACKAGE ...]   these too
#	setup.sh --tests                 what only tests use too: compilers of Rust and AssemblyScript, docker-registry, Chromium
#	setup.sh --packages              only prints the packages' names
set -eu

# program or file : Debian package
needs='
runc:runc
crun:crun
busybox:busybox-static
nft:nftables
clang:clang
wasm-ld:lld
ip:iproute2
curl:curl
/usr/include/wasm32-wasi/stdio.h:wasi-libc
/usr/lib/llvm-14/lib/clang/14.0.6/lib/wasi/libclang_rt.builtins-wasm32.a:libclang-rt-14-dev-wasm32
'

if [ "${1:-}" = --packages ]; then
	for need in $needs; do echo "${need##*:}"; done
	exit 0
fi
tests=
if [ "${1:-}" = --tests ]; then
	tests=1
	needs="$needs node:nodejs npm:npm chromium-headless-shell:chromium-headless-shell /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core"
	shift
fi
needs="$needs $*"

if [ "$(id -u)" != 0 ]; then
	echo "not root: pods, namespaces and mounts need it. Run: sudo make ..." >&2
	exit 1
fi
PATH="$PATH:/usr/sbin:/sbin"

missing() {
	for need in $needs; do
		probe=${need%:*} package=${need##*:}
		case "$probe" in
		/*) [ -e "$probe" ] || echo "$package" ;;
		*) command -v "$probe" >/dev/null 2>&1 || echo "$package" ;;
		esac
	done
}

root=$(cd "$(dirname "$0")/.." && pwd)

# apt COMMAND... is apt-get for mirrors that are busy and beside another apt.
apt() { apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 "$@"; }

# fetched COMMAND... runs an apt command that fetches something, with the lists as they are, and if that fails with new
# ones, twice.
fetched() {
	apt "$@" >/dev/null 2>&1 && return
	apt update >/dev/null 2>&1 || true
	apt "$@" >/dev/null 2>&1 && return
	sleep 20
	apt update || true
	apt "$@"
}

# unpack FOLDER PACKAGE... unpacks packages below .cache, whole or not at all.
unpack() {
	to=$root/.cache/$1
	shift
	[ ! -d "$to" ] || return 0
	if [ "${SUNABA_NO_INSTALL:-}" = 1 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "missing Debian packages (not fetched, because SUNABA_NO_INSTALL=1 or there is no apt-get): $*" >&2
		return 1
	fi
	echo "fetching: $*"
	rm -rf "$to.new"
	mkdir -p "$to.new"
	(
		cd "$to.new"
		fetched download "$@" || exit 1
		for package in *.deb; do dpkg -x "$package" . && rm "$package" || exit 1; done
		# Rust for browsers, which is half of its package, and manuals.
		rm -rf usr/lib/rustlib/wasm32-unknown-unknown usr/share/doc
	) || { echo "apt-get could not fetch: $*" >&2; return 1; }
	mv "$to.new" "$to"
}

# Unpacked, not installed: docker-registry's package starts a service, and rustc's wants a C compiler and the libraries for
# this machine, 500 MB.
[ -z "$tests" ] || command -v docker-registry >/dev/null 2>&1 || unpack docker-registry docker-registry
[ -z "$tests" ] || unpack rust rustc libstd-rust-1.63 libstd-rust-dev-wasm32

# The compiler of the example in AssemblyScript, as its lock file pins it. Without npm's registry the tests that need it
# are skipped, and say so.
fetch_npm() {
	[ -n "$tests" ] || return 0
	cd "$root/examples/filter"
	[ ! node_modules/.package-lock.json -nt package-lock.json ] || return 0
	if [ "${SUNABA_NO_INSTALL:-}" = 1 ]; then
		echo "missing: node_modules of examples/filter (not fetched, because SUNABA_NO_INSTALL=1)" >&2
		return 0
	fi
	echo "fetching: what examples/filter/package-lock.json names"
	ci() { npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=5 2>&1; }
	said=$(ci) || { sleep 20; said=$(ci); } || {
		rm -rf node_modules
		echo "$said" >&2
		! npm ping >/dev/null 2>&1 || return 1
		echo "npm's registry does not answer: nothing in AssemblyScript is tested" >&2
	}
}

lacking=$(missing | tr '\n' ' ')
[ -n "$lacking" ] || { fetch_npm; exit; }

if [ "${SUNABA_NO_INSTALL:-}" = 1 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing Debian packages (not installed, because SUNABA_NO_INSTALL=1 or there is no apt-get): $lacking" >&2
	exit 1
fi
echo "installing: $lacking"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
fetched install -y --no-install-recommends $lacking || { echo "apt-get could not install: $lacking" >&2; exit 1; }
lacking=$(missing | tr '\n' ' ')
[ -z "$lacking" ] || { echo "still missing after the installation: $lacking" >&2; exit 1; }
fetch_npm
