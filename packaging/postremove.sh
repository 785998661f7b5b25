#!/bin/sh
# dpkg: remove, purge, upgrade and others. rpm: how many versions stay installed.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
case $1 in
remove) deb-systemd-helper mask sunaba.service >/dev/null ;;
purge)
	deb-systemd-helper purge sunaba.service >/dev/null
	deb-systemd-helper unmask sunaba.service >/dev/null
	echo "sunaba: images and records are still in /var/lib/sunaba, and what you have put into /etc/sunaba is there." >&2
	;;
esac
