#!/bin/sh
# dpkg: configure [OLD-VERSION]. rpm: how many versions are installed now.
set -e
unit=sunaba.service
case $1 in
configure) # Debian's helpers know what the administrator has disabled or masked, also while the package was removed
	deb-systemd-helper unmask $unit >/dev/null
	if deb-systemd-helper --quiet was-enabled $unit; then
		deb-systemd-helper enable $unit >/dev/null
	else
		deb-systemd-helper update-state $unit >/dev/null
	fi
	[ -d /run/systemd/system ] || exit 0
	systemctl daemon-reload
	deb-systemd-invoke "$([ -n "${2:-}" ] && echo restart || echo start)" $unit # pods run on
	;;
1)
	[ -d /run/systemd/system ] || exit 0
	systemctl daemon-reload
	systemctl enable --now $unit
	;;
*)
	[ -d /run/systemd/system ] || exit 0
	systemctl daemon-reload
	systemctl try-restart $unit
	;;
esac
