#!/bin/sh
# A machine for one test: systemd is its first process, and it ends with the test.
#
#   machine.sh hold FOLDER PROGRAM TOP     in a mount namespace of its own
#
# FOLDER is the test's: `units`, `configuration` and `lib` in it are the machine's
# /etc/systemd/system, /etc/handoff and /var/lib. PROGRAM is installed as
# /usr/bin/handoff, TOP is the top of the project. Nothing outside of FOLDER is
# changed, but for a control group that goes again.
#
# The machine lives until standard input ends, however the test has ended.
set -eu

stage=$1 folder=$2 program=$3 top=$4
root=$folder/root

# What the shipped unit and the tests start; the libraries are this system's.
readonly PROGRAMS="cat chmod chown env journalctl kill mkdir mount mv setpriv sh sleep systemctl test touch true"
readonly DEVICES="full null random tty urandom zero"

hold() {
    # Who ends the test from a terminal ends every process of it, but for this one.
    trap '' HUP INT TERM
    # systemd takes the control group that it is started in for its own.
    mkdir "$folder/cgroup"
    mount -t cgroup2 cgroup2 "$folder/cgroup"
    group=$folder/cgroup/handoff-test-$$
    mkdir "$group"
    (
        echo 0 >"$group/cgroup.procs"
        exec unshare --mount --pid --uts --ipc --cgroup --fork \
            sh "$0" run "$folder" "$program" "$top"
    ) </dev/null &
    machine=$!
    read -r _ || true
    while [ ! -s "$folder/init.pid" ] && kill -0 "$machine" 2>/dev/null; do
        sleep 0.1
    done
    kill -KILL "$(cat "$folder/init.pid")" || true
    wait "$machine" || true
    until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; do
        sleep 0.1
    done
}

run() {
    # The shell's number outside: /proc is still that of the outer system.
    read -r pid _ </proc/self/stat
    mkdir "$root"
    mount -t tmpfs -o mode=755 tmpfs "$root"
    cd "$root"
    file_system
    devices
    install_handoff
    pivot_root . old
    /old/usr/bin/umount --lazy /old
    # As on any machine with systemd; credentials reach a service by it.
    mount --make-rshared /
    echo "$pid" >/run/init.pid
    exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin \
        SYSTEMD_UNIT_PATH=/etc/systemd/system \
        /usr/lib/systemd/systemd --unit=multi-user.target --show-status=0
}

file_system() {
    mkdir -p usr/bin etc/systemd/system etc/handoff var/lib var/log dev proc sys run tmp old root
    chmod 1777 tmp
    for shared in /usr/lib* /usr/sbin /usr/share; do
        mkdir ".$shared"
        mount --bind -o ro "$shared" ".$shared"
    done
    ln -s usr/bin usr/sbin usr/lib* .
    for name in $PROGRAMS; do
        cp "/usr/bin/$name" usr/bin
    done
    cp /etc/ld.so.cache etc
    echo handoff-test >etc/hostname
    echo 0123456789abcdef0123456789abcdef >etc/machine-id
    echo root:x:0:0:root:/root:/bin/sh >etc/passwd
    echo root:x:0: >etc/group
    mount --bind "$folder/units" etc/systemd/system
    mount --bind "$folder/configuration" etc/handoff
    mount --bind "$folder/lib" var/lib
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mkdir -p run/systemd/system run/log/journal
    : >run/init.pid
    : >"$folder/init.pid"
    mount --bind "$folder/init.pid" run/init.pid
}

devices() {
    mount -t tmpfs -o mode=755 tmpfs dev
    for name in $DEVICES; do
        : >"dev/$name"
        mount --bind "/dev/$name" "dev/$name"
    done
    : >dev/console
    : >"$folder/console"
    mount --bind "$folder/console" dev/console
    mkdir dev/mqueue dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
}

install_handoff() {
    : >usr/bin/handoff
    mount --bind -o ro "$program" usr/bin/handoff
    systemd-sysusers --root="$root" "$top/systemd/handoff.sysusers"
}

"$stage"
