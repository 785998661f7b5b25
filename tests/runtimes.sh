#!/bin/sh
# Fetches OCI runtimes that are no Go modules into .cache, for `make runtimes-test`: crun of Debian's newest release with the
# libraries that it was linked with, and youki from crates.io. For `make test-arches`, it fetches qemu's emulators of single
# programs. Nothing is installed, and apt's own lists stay as they are. One that cannot be had is named, and is no error.
#
#	runtimes.sh [crun] [youki] [qemu]
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cache=$root/.cache
mkdir -p "$cache"
exec 9>"$cache/runtimes.lock"
flock 9 # what runs beside this uses the same folders

# lists RELEASE gets the lists of a release of Debian for debian, apart from the machine's own.
lists() {
	rm -rf "$cache/apt"
	mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
	: >"$cache/apt/status"
	keys=/usr/share/keyrings/debian-archive-keyring.gpg
	echo "deb [signed-by=$keys] http://deb.debian.org/debian $1 main" >"$cache/apt/sources.list"
	debian update >/dev/null
}

# debian COMMAND... runs apt-get with those lists alone.
debian() {
	apt-get -o Dir::Etc::sourcelist="$cache/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$cache/apt/lists" \
		-o Dir::State::status="$cache/apt/status" -o Dir::Cache="$cache/apt/cache" -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
}

fetch_crun() {
	to=$cache/crun
	[ ! -x "$to/usr/bin/crun" ] || return 0
	command -v apt-get >/dev/null 2>&1 || return 1
	rm -rf "$to"
	mkdir -p "$to"
	lists sid || return 1
	(
		cd "$to" || exit 1
		debian download crun libc6 libcap2 libseccomp2 libsystemd0 libjson-c5 libblake3-0 patchelf >/dev/null || exit 1
		for package in *.deb; do dpkg -x "$package" . && rm "$package" || exit 1; done
	) || return 1
	rm -rf "$cache/apt"
	# It is of a later Debian than this machine may be: it gets its own C library.
	libc=$(find "$to" -name libc.so.6 | head -n 1)
	loader=$(find "$to" -name 'ld-linux*.so.*' -o -name 'ld64.so.*' | head -n 1)
	with() { "$loader" --library-path "$(dirname "$libc"):$(dirname "$(find /usr/lib -name 'libstdc++.so.6' | head -n 1)"):$(dirname "$(find /usr/lib /lib -name 'libgcc_s.so.1' | head -n 1)")" "$@"; }
	cp "$to/usr/bin/crun" "$to/usr/bin/crun.new"
	with "$to/usr/bin/patchelf" --set-interpreter "$loader" --set-rpath "$(dirname "$libc")" "$to/usr/bin/crun.new" || return 1
	mv "$to/usr/bin/crun.new" "$to/usr/bin/crun"
	"$to/usr/bin/crun" --version >/dev/null
}

# Debian 12's Rust is too old for it.
fetch_youki() {
	[ ! -x "$cache/youki/bin/youki" ] || return 0
	command -v cargo >/dev/null 2>&1 || return 1
	CARGO_TARGET_DIR=$cache/youki/target cargo install --quiet --locked --features v1 --root "$cache/youki" youki || return 1
	rm -rf "$cache/youki/target"
}

# That of Debian 12 has no openat2. The package is unpacked and not installed, which would have the kernel run programs of
# other architectures by it. It may be there whole or not at all.
fetch_qemu() {
	to=$cache/qemu
	[ ! -d "$to" ] || return 0
	command -v apt-get >/dev/null 2>&1 || return 1
	rm -rf "$to.new"
	mkdir -p "$to.new"
	lists trixie || return 1
	(
		cd "$to.new" || exit 1
		debian download qemu-user >/dev/null || exit 1
		dpkg -x qemu-user_*.deb . || exit 1
		rm qemu-user_*.deb
		find usr/bin ! -name qemu-aarch64 ! -name qemu-arm ! -name qemu-riscv64 ! -type d -delete
	) || return 1
	rm -rf "$cache/apt"
	mv "$to.new" "$to"
}

for name in "$@"; do
	if ! "fetch_$name"; then
		rm -rf "${cache:?}/$name"
		echo "left out: $name (it cannot be fetched or made on this machine)" >&2
	fi
done
