#!/bin/sh
# First process of the machine. The kernel's root is the host's file system, read-only. The machine's root is an overlay over it, or
# over the folder tree=; what is written there stays in the machine's memory. On the kernel's command line:
#	share=FOLDER   of the host, writable: has this file, the agent and its plan, gets what the agent says
#	see=A,B        folders of the host to see at the same path. Without tree= the whole host is there, except its /tmp, /run
#	               and /var/lib/sunaba
#	tree=FOLDER    of the host: the root file system, with systemd as the first process
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ "${1:-}" != second ]; then
	mount -t proc proc /proc
	share='' see='' tree=/
	for word in $(cat /proc/cmdline); do
		case $word in share=* | see=* | tree=*) eval "${word%%=*}=\${word#*=}" ;; esac
	done
	mount -t tmpfs tmpfs /mnt
	mkdir /mnt/upper0 /mnt/work0 /mnt/root
	mount -t overlay -o lowerdir="$tree",upperdir=/mnt/upper0,workdir=/mnt/work0,xino=off overlay /mnt/root || exec busybox halt -f
	cd /mnt/root
	mkdir -p proc sys dev run tmp
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	mount -t devtmpfs dev dev
	for d in run tmp var/lib/sunaba; do
		mkdir -p $d
		mount -t tmpfs -o mode=755 tmpfs $d
	done
	chmod 1777 tmp
	mkdir -p run/share
	mount -t hostfs -o "$share" none run/share
	n=1
	for s in $(echo "$see" | tr , ' '); do
		mkdir -p ".$s" /mnt/lower$n /mnt/upper$n /mnt/work$n
		mount -t hostfs -o "ro,$s" none /mnt/lower$n
		mount -t overlay -o lowerdir=/mnt/lower$n,upperdir=/mnt/upper$n,workdir=/mnt/work$n,xino=off overlay ".$s"
		n=$((n + 1))
	done
	# A name that resolves: sudo complains of another one.
	echo machine > etc/hostname
	printf '127.0.0.1 localhost machine\n::1 localhost\n' > etc/hosts
	if [ "$tree" != / ]; then
		unit=etc/systemd/system/sunaba-suites.service
		cat > $unit <<-UNIT
			[Unit]
			After=dbus.socket
			[Service]
			Type=oneshot
			# A suite that has the machine start again ends with it: the shell does too.
			ExecStart=/bin/sh -c "/run/share/agent -inside /run/share; systemctl --force poweroff"
			Environment=HOME=/root TERM=dumb LANG=C.UTF-8
			TimeoutStartSec=infinity
			OOMPolicy=continue
			TasksMax=infinity
			LimitNOFILE=1048576
		UNIT
		mkdir -p etc/systemd/system/default.target.wants
		ln -sf ../sunaba-suites.service etc/systemd/system/default.target.wants/sunaba-suites.service
		ln -sf /lib/systemd/system/multi-user.target etc/systemd/system/default.target
		for u in getty@tty1.service console-getty.service systemd-udev-trigger.service systemd-udevd.service apt-daily.timer \
			apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer; do
			ln -sf /dev/null etc/systemd/system/$u
		done
		[ -s etc/machine-id ] || echo 5eed5eed5eed5eed5eed5eed5eed5eed > etc/machine-id
		exec switch_root . /sbin/init
	fi
	mkdir -p dev/pts dev/shm dev/mqueue run/lock
	mount -t devpts -o newinstance,ptmxmode=0666,gid=5,mode=620 devpts dev/pts
	ln -sf pts/ptmx dev/ptmx
	mount -t tmpfs tmpfs dev/shm
	mount -t mqueue mqueue dev/mqueue
	ln -sf /proc/self/fd dev/fd
	for i in 0:stdin 1:stdout 2:stderr; do ln -sf /proc/self/fd/${i%:*} dev/${i#*:}; done
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t securityfs securityfs sys/kernel/security 2>/dev/null
	mount -t bpf bpf sys/fs/bpf 2>/dev/null
	exec switch_root . /run/share/first.sh second
fi
mount --make-rshared /
hostname machine
ip link set lo up
# As systemd does: no process in the root cgroup, every controller for its children.
mkdir -p /sys/fs/cgroup/init.scope
echo $$ > /sys/fs/cgroup/init.scope/cgroup.procs
for c in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$c" > /sys/fs/cgroup/cgroup.subtree_control; done
ulimit -n 1048576
sysctl -qw net.ipv4.ip_forward=1
export HOME=/root TERM=dumb LANG=C.UTF-8
setsid -w /run/share/agent -inside /run/share </dev/null
sync
exec busybox halt -f
