#!/bin/sh
# Runs a command whose temporary files are on a disk of their own: an ext4 in a file, in a mount namespace that ends with
# the command. On an ext4 without a journal, as some machines' own is, each new file costs a look at all those that were
# removed in the last minutes, and tests remove many: a seventh of the processor time of tests with nodes. Needs root.
#
#	scratch.sh COMMAND [ARGUMENT ...]
set -eu
if [ -z "${SUNABA_SCRATCH:-}" ]; then
	SUNABA_SCRATCH=$(mktemp -d /tmp/XXX) # short: the names of sockets below it have 107 bytes at most
	trap 'rmdir "$SUNABA_SCRATCH"' EXIT
	trap 'exit 1' INT TERM
	export SUNABA_SCRATCH
	unshare --mount "$0" "$@"
	exit
fi
export TMPDIR="$SUNABA_SCRATCH"
unset SUNABA_SCRATCH
disk=$(mktemp "$TMPDIR-XXX")
trap 'rm -f "$disk"' EXIT
truncate -s 32G "$disk"
PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -m 0 "$disk"
mount -o loop,nobarrier,discard,noinit_itable "$disk" "$TMPDIR"
rm "$disk" # the mount keeps it
trap - EXIT
chmod 1777 "$TMPDIR"
exec "$@"
