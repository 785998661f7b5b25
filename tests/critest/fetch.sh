#!/bin/sh
# Makes what critest's images are packed from, in the folder $1: a static busybox from Debian's source package, and nginx
# with its libraries from Debian's packages. Needs root and, the first time, Debian's mirrors as apt is configured; does
# nothing when all is there.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") # the folder is changed below
exec 9>"$out.lock"
flock 9 # what runs beside this makes the same
# What is made depends on this file alone, so a change of it makes it anew.
stamp=$(sha256sum "$here/fetch.sh" | cut -c1-16)
[ "$(cat "$out/stamp" 2>/dev/null || true)" != "$stamp" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "not root: critest runs pods. Run: sudo make critest" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "no apt-get: busybox's source and nginx come from Debian" >&2
	exit 1
fi
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
ended() {
	code=$?
	rm -rf "$work"
	[ "$code" = 0 ] || { say "the last lines of $out/log:"; tail -n 20 "$out/log" >&3; }
}
trap ended EXIT
chmod 755 "$work"
exec 3>&1 >"$out/log" 2>&1
say() { echo "$*" >&3; }
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
fail() {
	say "$*"
	exit 1
}

# apt COMMAND... is apt-get for mirrors that are busy and beside another apt.
apt() { apt-get -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 -o APT::Sandbox::User=root "$@"; }

# fetched COMMAND... runs an apt command that fetches something, with the lists as they are, and if that fails with new
# ones, twice.
fetched() {
	apt "$@" && return
	apt update || true
	apt "$@" && return
	sleep 20
	apt update || true
	apt "$@"
}

# --- tools ------------------------------------------------------------------------------------------
missing=
for need in cc:gcc make:make bzip2:bzip2 xz:xz-utils patch:patch; do
	command -v "${need%:*}" >/dev/null 2>&1 || missing="$missing ${need#*:}"
done
[ -e /usr/include/crypt.h ] || missing="$missing libcrypt-dev"
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
if [ -n "$missing" ]; then
	say "installing:$missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086
	fetched install -y --no-install-recommends $missing || fail "apt-get could not install:$missing"
fi

# --- busybox ----------------------------------------------------------------------------------------
# The source's place is the configured mirror's: its deb lines as deb-src lines, in lists of our own.
say "building busybox from Debian's source package"
targets() {
	apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 'Origin: Debian' | sort -u
}
if [ -z "$(targets)" ]; then
	apt update || { sleep 20; apt update; } || true
fi
targets >"$work/sources.list"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
source_apt() {
	apt -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" "$@"
}
source_busybox() { source_apt update && (cd "$work/source" && source_apt source --download-only busybox); }
source_busybox || { sleep 20; source_busybox; } || fail "apt could not fetch busybox's source"
cp "$work"/source/*.dsc "$out/"
mkdir "$work/busybox"
tar -xjf "$work"/source/busybox_*.orig.tar.bz2 -C "$work/busybox" --strip-components=1
tar -xJf "$work"/source/busybox_*.debian.tar.xz -C "$work/busybox"
cd "$work/busybox"
for patch in $(sed 's/#.*//' debian/patches/series); do
	patch -p1 <"debian/patches/$patch" || fail "busybox: patch $patch does not apply"
done
export KCONFIG_NOTIMESTAMP=1 SOURCE_DATE_EPOCH=1735689600 LC_ALL=C
make defconfig || fail "busybox: make defconfig"
# CONFIG_TC needs kernel headers that newer kernels lack.
sed -i 's/^# CONFIG_STATIC is not set/CONFIG_STATIC=y/; s/^CONFIG_TC=y/# CONFIG_TC is not set/' .config
grep -qx '# CONFIG_FEATURE_SH_STANDALONE is not set' .config || fail "busybox: the shell would run applets by itself"
yes '' | make oldconfig || fail "busybox: make oldconfig"
make -j"$(nproc)" busybox || fail "busybox: make"
cp busybox "$out/busybox"

# --- nginx ------------------------------------------------------------------------------------------
say "fetching nginx"
mkdir "$work/debs"
packages='nginx libc6 libcrypt1 libpcre2-8-0 libssl3 zlib1g'
# shellcheck disable=SC2086
(cd "$work/debs" && fetched download $packages) || fail "apt could not fetch nginx"
mkdir "$out/nginx"
for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$out/nginx"
done
basename -a "$work"/debs/*.deb >"$out/packages"

echo "$stamp" >"$out/stamp"
