#!/bin/sh
# dpkg: remove, upgrade NEW-VERSION. rpm: how many versions stay installed.
set -e
case $1 in remove | 0) ;; *) exit 0 ;; esac
if [ -n "$(ls -A /run/sunaba/sandboxes 2>/dev/null)" ]; then
	echo "sunaba: the pods of this machine run on without the server. To end them, install it again, and end them first." >&2
fi
[ -d /run/systemd/system ] || exit 0
case $1 in
remove) deb-systemd-invoke stop sunaba.service ;;
0) systemctl disable --now sunaba.service ;;
esac
