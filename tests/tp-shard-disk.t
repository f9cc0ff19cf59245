#!/bin/sh
# tp-shard-disk.t - disks that fill up, fail, or are interrupted
. "${top_srcdir:?}/tests/lib.sh"
tp-shard split -q --tp 4 "$bard" want
tp-shard merge -q want whole
tp-shard reshard -q --tp 2 want two
tp-shard merge -q --export dcp want dcp

# only_partial DIR NAME - nothing in DIR but what a later run of the same command continues
only_partial() {
    [ ! -e "$1/$2" ] && [ "$(ls -A "$1")" = "$2.partial" ]
}

# a disk that is too small, and is made larger
small=$scratch/small
mkdir small
if mount -t tmpfs -o size=1500k none small 2> mount.err; then
    trap 'umount "$small"; rm -rf "$scratch"' EXIT
    for command in "split --tp 4 $bard" "merge want" "merge --export dcp want" "reshard --tp 2 want"; do
        verb=${command%% *}
        mount -o remount,size=1500k "$small"
        # shellcheck disable=SC2086 # a command and its operands
        run tp-shard $command small/out
        status_is 4 "$verb to a full disk is an error of the machine"
        err_has "No space left on device" "that is named"
        err_lines 1 "in one line"
        ok "$verb leaves nothing under the final name" only_partial small out
        mount -o remount,size=64m "$small"
        # shellcheck disable=SC2086
        run tp-shard $command small/out
        status_is 0 "$verb continues when there is room"
        case $command in
        split*) undisturbed=want ;;
        *dcp*) undisturbed=dcp ;;
        merge*) undisturbed=whole ;;
        reshard*) undisturbed=two ;;
        esac
        ok "and gives what an undisturbed run gives" diff -r "$undisturbed" small/out
        rm -rf small/out
    done
    mount -o remount,size=4k "$small"
    run tp-shard sum -o small/sums "$bard"
    mount -o remount,size=64m "$small"
    ok "sums that find no room are not half there" test "$status" = 0 -o ! -e small/sums
    umount "$small"
    trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
else
    skip "a full disk is an error of the machine" "cannot mount a small file system"
fi

# a disk that fails
shim=$top_builddir/tests/fail-io.so
if LD_PRELOAD=$shim tp-shard --version > version.out 2> version.err && [ ! -s version.err ]; then
    for call in read write sync; do
        for at in 1 2 7; do
            rm -rf out.d out.d.partial
            [ "$call$at" = sync7 ] && at=5
            run env LD_PRELOAD="$shim" FAIL_CALL=$call FAIL_AT=$at tp-shard split -q --tp 4 "$bard" out.d
            status_is 4 "a failing $call (number $at) is an error of the machine"
            err_has "Input/output error" "that is named"
            ok "and nothing has the final name" test ! -e out.d
            run tp-shard split -q --tp 4 "$bard" out.d
            ok "the same command completes it" diff -r want out.d
        done
    done
    for at in write.1 write.9 sync.1 sync.2; do
        run env LD_PRELOAD="$shim" FAIL_CALL="${at%.*}" FAIL_AT="${at#*.}" \
            tp-shard merge -q --export dcp want out.dcp
        status_is 4 "an export on a disk that fails ($at) is an error of the machine"
        ok "and nothing has the final name" test ! -e out.dcp
    done
    run tp-shard merge -q --export dcp want out.dcp
    ok "the same command completes it" diff -r dcp out.dcp
    run env LD_PRELOAD="$shim" FAIL_CALL=read FAIL_AT=3 tp-shard verify want
    status_is 1 "verify finds a file that cannot be read"
    out_has "rank-tp0-pp0.safetensors: Input/output error" "and says why"
else
    skip "a failing disk is an error of the machine" "nothing can be preloaded here"
fi

# ended by a signal
rm -rf out.d out.d.partial
run timeout --preserve-status -s TERM 0.004 tp-shard split -q --tp 4 "$bard" out.d
ok "a run that is ended leaves a whole output or none" test ! -e out.d -o -f out.d/checkpoint.json
ok "and has the signal's status" test "$status" = 143 -o "$status" = 0
[ -e out.d ] || tp-shard split -q --tp 4 "$bard" out.d
ok "the same command completes it" diff -r want out.d
done_testing
