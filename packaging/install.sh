#!/bin/sh
# Lays out what Sunaba installs, or removes it; `make install`, `make uninstall` and `make dist` call it.
#
#	install.sh install|remove DESTDIR PREFIX UNITDIR [PROGRAMS SHARE]
#
# PREFIX is /usr or /usr/local, UNITDIR where systemd looks for units there. DESTDIR comes before both, and before /etc, where
# the configuration is installed unless there is one already; remove leaves it. PROGRAMS is the folder of both programs, SHARE
# what `make share` has made.
set -eu
action=$1 dest=$2 prefix=$3 units=$4 programs=${5:-} share=${6:-}
here=$(cd "$(dirname "$0")" && pwd)

# put MODE SOURCE PATH
put() {
	case $action in
	install) install -D -m "$1" "$2" "$dest$3" ;;
	remove) rm -f "$dest$3" ;;
	*) echo "install.sh: unknown action $action" >&2 && exit 2 ;;
	esac
}

if [ "$action" = install ]; then
	for f in "$programs/sunaba" "$programs/containerd-shim-sunaba-v1" "$share/man/sunaba.1"; do
		[ -f "$f" ] || { echo "install.sh: $f is missing: run make first" >&2 && exit 1; }
	done
	unit=$(mktemp)
	trap 'rm -f "$unit"' EXIT
	sed "s|@BINDIR@|$prefix/bin|" "$here/sunaba.service" >"$unit"
fi
put 755 "$programs/sunaba" "$prefix/bin/sunaba"
put 755 "$programs/containerd-shim-sunaba-v1" "$prefix/bin/containerd-shim-sunaba-v1"
put 644 "${unit:-}" "$units/sunaba.service"
put 644 "$share/completion/bash" "$prefix/share/bash-completion/completions/sunaba"
put 644 "$share/completion/zsh" "$prefix/share/zsh/site-functions/_sunaba"
put 644 "$share/completion/fish" "$prefix/share/fish/vendor_completions.d/sunaba.fish"
put 644 "$here/crictl.yaml" "$prefix/share/doc/sunaba/crictl.yaml"
put 644 "$here/../LICENSE" "$prefix/share/doc/sunaba/copyright"
put 644 "$here/../CHANGELOG.md" "$prefix/share/doc/sunaba/CHANGELOG.md"
if [ "$action" = install ]; then
	for page in "$share"/man/*.1; do
		gzip -9nc "$page" >"$page.gz"
		put 644 "$page.gz" "$prefix/share/man/man1/$(basename "$page").gz"
		rm "$page.gz"
	done
	[ -e "$dest/etc/sunaba/config.toml" ] || put 644 "$here/config.toml" /etc/sunaba/config.toml
else
	rm -f "$dest$prefix"/share/man/man1/sunaba.1.gz "$dest$prefix"/share/man/man1/sunaba-*.1.gz
	[ ! -d "$dest$prefix/share/doc/sunaba" ] || rmdir "$dest$prefix/share/doc/sunaba"
fi
