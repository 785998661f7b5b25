#!/bin/sh
# Installs the Debian packages that the tests, the demo and the benchmark need, and those of its arguments (each
# PROGRAM-OR-FILE:PACKAGE), or says what is missing.
# Does nothing when all is there. Needs root; never touches anything but apt.
#
#	setup.sh [PROGRAM:PACKAGE ...]   these too
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
needs="$needs $*"

if [ "$(id -u)" != 0 ]; then
	echo "not root: pods, namespaces and mounts need it. Run: sudo make ..." >&2
	exit 1
fi
PATH="$PATH:/usr/sbin:/sbin"

needs="$needs $*"

missing() {
	for need in $needs; do
		probe=${need%:*} package=${need##*:}
		case "$probe" in
		/*) [ -e "$probe" ] || echo "$package" ;;
		*) command -v "$probe" >/dev/null 2>&1 || echo "$package" ;;
		esac
	done
}

# docker-registry is unpacked, not installed: its package starts a service.
cache=$(cd "$(dirname "$0")/.." && pwd)/.cache/docker-registry
unpack_registry() {
	! command -v docker-registry >/dev/null 2>&1 && [ ! -x "$cache/usr/bin/docker-registry" ] || return 0
	if [ "${SUNABA_NO_INSTALL:-}" = 1 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "missing Debian package (not fetched, because SUNABA_NO_INSTALL=1 or there is no apt-get): docker-registry" >&2
		return 1
	fi
	echo "fetching: docker-registry"
	rm -rf "$cache"
	mkdir -p "$cache"
	(
		cd "$cache"
		apt-get download docker-registry >/dev/null 2>&1 || {
			apt-get update >/dev/null 2>&1 || true
			apt-get download docker-registry
		}
		dpkg -x docker-registry_*.deb .
		rm docker-registry_*.deb
	) || { echo "apt-get could not fetch docker-registry" >&2; return 1; }
}
unpack_registry

lacking=$(missing | tr '\n' ' ')
[ -n "$lacking" ] || exit 0

if [ "${SUNABA_NO_INSTALL:-}" = 1 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing Debian packages (not installed, because SUNABA_NO_INSTALL=1 or there is no apt-get): $lacking" >&2
	exit 1
fi
echo "installing: $lacking"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install -y --no-install-recommends $lacking >/dev/null 2>&1 || {
	apt-get update >/dev/null 2>&1 || true
	apt-get install -y --no-install-recommends $lacking || { echo "apt-get could not install: $lacking" >&2; exit 1; }
}
lacking=$(missing | tr '\n' ' ')
[ -z "$lacking" ] || { echo "still missing after the installation: $lacking" >&2; exit 1; }
