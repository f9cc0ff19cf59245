# machines.sh - two machines, a and b, for tests: source it after lib.sh
#
#   machines_start                starts both; fails if it cannot, with the reason in $machines_why
#   on a|b COMMAND...             runs COMMAND on one of them, in its directory, which is $scratch/side-a or side-b here
#   machine_kill a|b              takes its power away
#   machines_stop                 both; to be called by the trap that removes the scratch directory
#
# Each has a network of its own (addresses 10.213.7.1 and 10.213.7.2, 1 ms apart each way; $machines_delay is empty where
# the kernel has no netem), files of its own in its directory, /tmp and /dev/shm, processes, System V memory and a name
# (machine-a, machine-b).  Needs root, ip and namespaces.  /mnt/outside is the /proc of the machine that both are on.
machines=su$$
machines_why='needs root'
# shellcheck disable=SC2034 # for the test
machines_delay=1

machine_network() {
    ip netns add "$machines-a" && ip netns add "$machines-b" &&
        ip link add "${machines}a" netns "$machines-a" type veth peer name "${machines}b" netns "$machines-b" || return 1
    machine_number=0
    for machine in a b; do
        machine_number=$((machine_number + 1))
        ip -n "$machines-$machine" addr add 10.213.7.$machine_number/24 dev "$machines$machine" &&
            ip -n "$machines-$machine" link set lo up && ip -n "$machines-$machine" link set "$machines$machine" up || return 1
        tc -n "$machines-$machine" qdisc add dev "$machines$machine" root netem delay 1ms || machines_delay=''
    done
}

# the first process of a machine: its end is that of all
# shellcheck disable=SC2016 # for the inner shell
machine_init='echo "machine-$1" > /proc/sys/kernel/hostname && mount -t tmpfs none /dev/shm && mount -t tmpfs none /mnt &&
    mkdir /mnt/here /mnt/outside && mount --bind "side-$1" /mnt/here && mount --bind /proc /mnt/outside &&
    mount -t proc proc /proc && { [ -n "$2" ] || mount -t tmpfs none /tmp; } &&
    mount --bind "hosts-$1" /etc/hosts && { mount --bind /dev/null /etc/resolv.conf || :; } &&
    : > /mnt/here/.up && exec sleep 600'

machine_start() {
    case $(cd "$top_srcdir" && pwd)/$(cd "$top_builddir" && pwd) in
    */tmp/*) machine_keeps_tmp=1 ;;
    *) machine_keeps_tmp='' ;;
    esac
    mkdir -p "side-$1"
    # each names itself as Debian does, by a loopback address
    printf '%s\n' '127.0.0.1 localhost' '10.213.7.1 machine-a' '10.213.7.2 machine-b' |
        sed "s/^.* machine-$1/127.0.1.1 machine-$1/" > "hosts-$1"
    ip netns exec "$machines-$1" unshare --mount --uts --ipc --pid --fork --kill-child \
        sh -c "$machine_init" sh "$1" "$machine_keeps_tmp" > "machine-$1.out" 2>&1 < /dev/null &
    machine_parent=$!
    machine_tries=0
    while [ ! -e "side-$1/.up" ]; do
        machine_tries=$((machine_tries + 1))
        { kill -0 $machine_parent && [ $machine_tries -lt 500 ]; } 2> machine.err || return 1
        sleep 0.01
    done
    tr -d ' ' < /proc/$machine_parent/task/$machine_parent/children > "machine-$1.pid"
    [ -s "machine-$1.pid" ]
}

machines_start() {
    [ "$(id -u)" -eq 0 ] || return 1
    machines_why='needs ip, tc, unshare and nsenter'
    for machine in ip tc unshare nsenter; do
        command -v $machine > machine.out || return 1
    done
    machines_why='cannot make network namespaces here'
    machine_network > machine.out 2>&1 || return 1
    machines_why='cannot make processes with namespaces here'
    machine_start a && machine_start b || return 1
}

on() {
    machine_pid=$(cat "$scratch/machine-$1.pid")
    shift
    # shellcheck disable=SC2016 # for the inner shell
    nsenter --target "$machine_pid" --mount --uts --ipc --net --pid sh -c 'cd /mnt/here && exec "$@"' sh "$@"
}

machine_kill() {
    kill -KILL "$(cat "machine-$1.pid")"
}

machines_stop() {
    for machine in a b; do
        [ ! -s "$scratch/machine-$machine.pid" ] || kill -KILL "$(cat "$scratch/machine-$machine.pid")"
        ip netns del "$machines-$machine"
    done 2> "$scratch/machine.err"
}
