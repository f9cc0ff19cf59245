#!/bin/sh
# tp-shard-disk.t - disks that fill up or fail, and runs that a signal ends
. "${top_srcdir:?}/tests/lib.sh"
tp-shard split -q --tp 4 "$bard" want
tp-shard merge -q want whole
tp-shard reshard -q --tp 2 want two
tp-shard merge -q --export dcp want dcp
tp-shard sum -o sums "$bard"

# fill_disk LEFT - take all room of the small disk but LEFT bytes
fill_disk() {
    head -c 64M /dev/zero > small/fill 2> fill.err || :
    truncate -s "-$1" small/fill
    sync -f small/fill
}

# stops_and_continues KIND WANT COMMAND... - on a disk of that kind with little room, and again with room
stops_and_continues() {
    kind=$1
    wanted=$2
    shift 2
    run tp-shard "$@"
    status_is 4 "$1 to a full $kind is an error of the machine"
    err_has "No space left on device" "that is named"
    err_lines 1 "in one line"
    ok "$1 leaves nothing under the final name" test ! -e small/out
    ls -A small > left
    rm small/fill
    run tp-shard "$@"
    status_is 0 "the same command gives what is asked when there is room"
    ok "which is what an undisturbed run gives" diff -r "$wanted" small/out
    rm -rf small/out
}

# try_full KIND - the same commands on each kind of small disk, mounted on `small`
try_full() {
    trap 'umount "$scratch/small"; rm -rf "$scratch"' EXIT
    fill_disk 1500000
    stops_and_continues "$1" want split -q --tp 4 "$bard" small/out
    ok "having kept for the next run what was written" grep -qx out.partial left
    fill_disk 1500000
    stops_and_continues "$1" whole merge -q want small/out
    fill_disk 1500000
    stops_and_continues "$1" dcp merge -q --export dcp want small/out
    fill_disk 1500000
    stops_and_continues "$1" two reshard -q --tp 2 want small/out
    fill_disk 0
    stops_and_continues "$1" sums sum -o small/out "$bard"
    ok "sum having left no other file" test "$(grep -cvx -e fill -e lost+found left)" = 0
    umount small
    trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
}

mkdir small
if mount -t tmpfs -o size=24m none small 2> mount.err; then
    try_full tmpfs
else
    skip "a full tmpfs is an error of the machine" "cannot mount a small file system"
fi
truncate -s 24M image
if mkfs.ext4 -q -m 0 image > mkfs.out 2>&1 && mount -o loop image small 2> mount.err; then
    try_full ext4
else
    skip "a full ext4 is an error of the machine" "cannot mount a small file system"
fi

# a disk that fails
shim=$top_builddir/tests/fail-io.so
if LD_PRELOAD=$shim tp-shard --version > version.out 2> version.err && [ ! -s version.err ]; then
    # failing CALL AT WANT COMMAND... - its call number AT fails, and then it is run again
    failing() {
        call=$1
        at=$2
        wanted=$3
        shift 3
        run env LD_PRELOAD="$shim" FAIL_CALL="$call" FAIL_AT="$at" tp-shard "$@" out.d
        status_is 4 "$1: a failing $which (number $at) is an error of the machine"
        err_has "Input/output error" "that is named"
        err_lines 1 "in one line"
        ok "and nothing has the final name" test ! -e out.d
        run tp-shard "$@" out.d
        ok "the same command completes it" diff -r "$wanted" out.d
        rm -rf out.d
    }
    for which in "pread 1" "pread 7" "pwrite 1" "pwrite 7" "sync 1" "sync 5"; do
        # shellcheck disable=SC2086 # a call and its number
        failing $which want split -q --tp 4 "$bard"
    done
    for which in "pread 7" "pwrite 7" "sync 1"; do
        # shellcheck disable=SC2086
        failing $which whole merge -q want
        # shellcheck disable=SC2086
        failing $which two reshard -q --tp 2 want
    done
    for which in "pwrite 1" "pwrite 9" "sync 1" "sync 2"; do
        # shellcheck disable=SC2086
        failing $which dcp merge -q --export dcp want
    done
    at=0
    while [ $((at += 1)) -lt 100 ]; do
        run env LD_PRELOAD="$shim" FAIL_CALL=sync FAIL_AT=$at tp-shard split -q --tp 4 "$bard" out.d
        [ "$status" -ne 0 ] || break
        cp err last.err
        rm -rf out.d*
    done
    rm -rf out.d
    ok "the last sync is that of the directory which holds the output" grep -qx 'tp-shard: \.: Input/output error' last.err
    # what a stat that fails hides is not left out
    small=$data/models/arcee-odd
    tp-shard split -q --tp 2 "$small" small.d
    at=0
    lost=
    while [ $((at += 1)) -le 24 ]; do
        run env LD_PRELOAD="$shim" FAIL_CALL=stat FAIL_AT=$at tp-shard split -q --tp 2 "$small" out.d
        [ "$status" -ne 0 ] || diff -r small.d out.d > /dev/null || lost="$lost $at"
        rm -rf out.d*
    done
    ok "where a file cannot be looked at, split ends or has it all the same" test -z "$lost"
    # and is told as the disk's fault, not as a file that is missing
    list=$data/models/arcee-odd/config.json
    for command in "tp-shard verify -q small.d" "tp-shard plan --tp 2 $small" "tp-shard diff $small small.d" \
        "tp-shard merge -q small.d out.d" "tp-shard reshard -q --tp 1 small.d out.d" "tp-run program small.d" \
        "tp-run program $small" "mem-estimate train $small" "mem-estimate train $list" "pp-partition plan --pp 2 $small"; do
        blamed=
        for at in 1 2 3 4 5 6; do
            # shellcheck disable=SC2086 # a command and its operands
            run env LD_PRELOAD="$shim" FAIL_CALL=stat FAIL_AT=$at $command
            case $status:$command in
            0:* | 4:* | 1:*verify*) ;; # a file that cannot be read is a finding of verify
            *) blamed="$blamed $at:$status" ;;
            esac
            rm -rf out.d*
        done
        ok "a stat that fails is status 4 of ${command%% -*}, or is not needed$blamed" test -z "$blamed"
    done
    run env LD_PRELOAD="$shim" FAIL_CALL=pread FAIL_AT=3 tp-shard verify -j 1 want
    status_is 1 "verify finds a file that cannot be read"
    out_has "rank-tp0-pp0.safetensors: Input/output error" "and says why"

    # ended by a signal, during its writing and while it waits for the disk
    for which in "write 3" "write 30" "sync 2"; do
        run env LD_PRELOAD="$shim" FAIL_CALL="${which% *}" FAIL_AT="${which#* }" FAIL_HOW=term \
            tp-shard split -q --tp 4 "$bard" out.d
        status_is 143 "a run that SIGTERM ends at $which has the signal's status"
        ok "and leaves nothing under the final name" test ! -e out.d
        run tp-shard split -q --tp 4 "$bard" out.d
        ok "the same command completes it" diff -r want out.d
        rm -rf out.d
    done
else
    skip "a failing disk is an error of the machine" "nothing can be preloaded here"
fi
done_testing
