#!/bin/sh
# Builds a User-Mode Linux kernel with all of cgroup version 2 from Debian's kernel sources.
#
#	kernel.sh FOLDER   makes FOLDER/linux and FOLDER/source, the name and version of the package that it was made of
#
# Debian 12's own sources are too old: User-Mode Linux before 6.13 cannot save the registers of a processor with AMX, before
# 6.16 it has no seccomp mode, before 6.19 it has one processor only, which leaves out cpuset. The sources come from the suite and the
# package below, or, when that package is no longer there, from the newest one of the suite, by an apt with lists of its own.
# $DEBIAN_MIRROR names another mirror than apt's.
set -eu
suite=trixie-backports
pinned=linux-source-7.3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/$' | head -n 1)}

cd "$out"
rm -rf src obj apt unpacked
mkdir -p apt/lists/partial apt/cache/archives/partial obj src
: > apt/status
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > apt/sources.list
cat > apt/conf <<-CONF
	Dir::State "$out/apt"; Dir::State::lists "$out/apt/lists"; Dir::State::status "$out/apt/status"; Dir::Cache "$out/apt/cache";
	Dir::Etc::sourcelist "$out/apt/sources.list"; Dir::Etc::sourceparts "/nonexistent"; APT::Sandbox::User "root"; Acquire::Retries "5";
CONF
export APT_CONFIG="$out/apt/conf"
apt-get -qq update
package=$pinned
if ! apt-cache show "$package" >/dev/null 2>&1; then
	package=$(apt-cache search --names-only '^linux-source-[0-9.]+$' | cut -d' ' -f1 | sort -V | tail -n 1)
	[ -n "$package" ] || { echo "kernel.sh: $suite has no package linux-source-*" >&2; exit 1; }
	echo "kernel.sh: $pinned is no longer in $suite, taking $package" >&2
fi
apt-get -qq download "$package"
deb=$(echo "$package"_*.deb)
source="$package $(dpkg-deb -f "$deb" Version)"
dpkg-deb -x "$deb" unpacked
# Half of the tree is other machines' drivers and documents.
tar -C src --strip-components=1 -xJf unpacked/usr/src/linux-source-*.tar.xz \
	--exclude='*/Documentation/*/*' --exclude='*/drivers/gpu/drm/*.[ch]' --exclude='*/tools/testing/*/*'
rm -rf unpacked "$deb"
unset APT_CONFIG

cd src
make -s ARCH=um O="$out/obj" defconfig
scripts/kconfig/merge_config.sh -m -O "$out/obj" "$out/obj/.config" "$here/uml.config" >/dev/null
make -s ARCH=um O="$out/obj" olddefconfig
grep -E '^CONFIG_' "$here/uml.config" | while IFS='=' read -r name value; do
	case $value in
	n) ! grep -q "^$name=" "$out/obj/.config" ;;
	*) grep -qF "$name=$value" "$out/obj/.config" ;;
	esac || echo "kernel.sh: the kernel does not take $name=$value" >&2
done
nice make -s ARCH=um O="$out/obj" -j"$(nproc)" linux
strip -s -o "$out/linux.new" "$out/obj/linux"
cd "$out"
rm -rf src obj apt
echo "$source" > source
mv linux.new linux
