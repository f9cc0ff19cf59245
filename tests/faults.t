#!/bin/sh
# faults.t - a call of the system fails once: nothing is lost, and status 4 names the file
#
# Each call of a kind fails in turn, from the first to the last; by default some of them are left out, with ALL_FAULTS=1
# none is.  A failure is handled when the job ends with status 4 and one line that names the error, what was there
# before still is, and the same command then gives the undisturbed result; or when the call was not needed (the
# size of a file is asked for as a hint of how much to allocate, say), and status and result are those of an undisturbed job.
. "${top_srcdir:?}/tests/lib.sh"
shim=$top_builddir/tests/fail-io.so
if ! LD_PRELOAD=$shim tp-shard --version > version.out 2> version.err || [ -s version.err ]; then
    skip "a call of the system may fail" "nothing can be preloaded"
    done_testing
fi
model=$data/models/llama-groups

# fresh JOB - the directory w, as JOB finds it
fresh() {
    rm -rf w
    cp -a "given.$1" w
}

# has_kept JOB - what JOB found is still in w
has_kept() {
    "kept_$1" > kept.out 2>&1
}

# has_done JOB - what is in w is JOB's result
has_done() {
    "done_$1" > done.out 2>&1
}

# attempt COMMAND... - runs it in w
attempt() {
    (cd w && exec timeout 60 "$@" > ../out 2> ../err < /dev/null)
}

# faults JOB PROGRAM COMMAND... - each call of each kind that PROGRAM makes fails once; the command is run again with
# the option $goes_on
goes_on=
faults() {
    job=$1
    program=$2
    shift 2
    fresh "$job"
    attempt "$@"
    ok "$job: is done" has_done "$job"
    for kind in stat open opendir readdir read rename sync; do
        case $kind-$job${ALL_FAULTS-} in
        *-ask | opendir-* | rename-*) pace=1 ;;
        *1) pace=1 ;;
        *) pace=7 ;;
        esac
        tried=0
        at=1
        harm=
        while [ $at -lt 2000 ]; do
            fresh "$job"
            rm -f log
            status=0
            attempt env LD_PRELOAD="$shim" FAIL_LOG="$scratch/log" FAIL_IN="$program" FAIL_CALL=$kind FAIL_AT=$at "$@" ||
                status=$?
            [ -e log ] || break
            tried=$((tried + 1))
            at=$((at + pace))
            cause=
            case $status in
            0) has_done "$job" || cause="another result" ;;
            4)
                [ "$(wc -l < err)" -eq 1 ] && grep -q 'Input/output error' err || cause="$(head -n 2 err)"
                has_kept "$job" || cause="lost"
                # what failed after the last rename need not be done again
                if [ $goes_on ] || ! has_done "$job"; then
                    attempt "$@" $goes_on || cause="$cause, status $? when run again: $(head -n 2 err)"
                    has_done "$job" || cause="$cause, another result when run again"
                fi
                ;;
            *) cause="status $status: $(head -n 2 err)" ;;
            esac
            [ -z "$cause" ] || harm="$harm [$(cat log): $cause]"
        done
        ok "$job: $tried failures of $kind harm nothing$harm" test -z "$harm"
        [ "$kind" != open ] || ok "$job: there are some" test "$tried" -gt 1
    done
}

# same_steps WANT GOT - the checkpoints of the run WANT are in GOT, and its log is the beginning of GOT's
same_steps() {
    for step in "$1"/step-*; do
        diff -r "$step" "$2/${step##*/}" || return 1
    done
    cmp -n "$(wc -c < "$1/log.jsonl")" "$1/log.jsonl" "$2/log.jsonl"
}

# losses RUN - what its log says of each step
losses() {
    sed -n 's/.*"type":"step"\(.*\),"tokens_per_second.*/\1/p' "$1/log.jsonl"
}

# ---- training ----

awk 'BEGIN { for (i = 0; i < 12; i++) { printf "{\"ids\":["
    for (k = 0; k < 9 + i; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7) % 95
    print "]}" } }' > ids.jsonl
step="tp-run train -q --data ../ids.jsonl --seq 24 --global-batch 2 --threads 1 --save-every 1 --seed 1"
mkdir given.train
mkdir here
(cd here && $step --steps 3 -o whole "$model" && $step --steps 3 --stop-after 0.000001 -o run "$model" &&
    tp-run train -q --resume --stop-after 0.000001 -o run) 2> err || cat err
mkdir given.resume
mv here/run given.resume/run

kept_train() { :; }
kept_resume() { same_steps given.resume/run w/run; }
done_train() { [ -d w/run/step-000003 ] && done_resume; }
done_resume() {
    diff -r here/whole/step-000003 w/run/step-000003 || return 1
    losses here/whole > want.losses
    losses w/run > got.losses
    cmp want.losses got.losses && [ "$(ls w/run)" = "$(ls here/whole)" ]
}
goes_on=--resume
# shellcheck disable=SC2086 # words
faults train tp-run $step --steps 3 -o run "$model"
goes_on=
faults resume tp-run tp-run train -q --resume -o run

# what a network's file system says when a machine is back, or a process with too many files: nothing is touched
eio=5 eacces=13 emfile=24 estale=116
for error in eio eacces emfile estale; do
    for what in "stat run/step-000002/checkpoint.json" "open run/." "opendir w/run" "readdir w/run"; do
        fresh resume
        kind=${what%% *}
        status=0
        attempt env LD_PRELOAD="$shim" FAIL_ERRNO="$(eval "echo \$$error")" FAIL_CALL="$kind" FAIL_AT=1 \
            FAIL_PATH="${what#* }" tp-run train -q --resume -o run || status=$?
        status_is 4 "$error of $kind is an error of the machine, and no run without checkpoints"
        err_has "tp-run: run" "that names the file"
        err_lines 1 "in one line"
        ok "checkpoints and log are as they were" diff -r given.resume w
    done
done

# ---- checkpoints ----

# is_old DIR, is_new DIR - the directory is the one that was there, or the one that is made
is_old() { diff -r given.split/out "$1"; }
# a directory that was replaced and could not be removed may be left
only_out() { [ "$(find w -maxdepth 1 -mindepth 1 ! -name 'out.old-*')" = w/out ]; }
kept_split() { [ -d w/out ] && { is_old w/out || diff -r want.split w/out; }; }
done_split() { diff -r want.split w/out && only_out; }
small=$data/models/arcee-odd
tp-shard split -q --tp 2 "$small" want.split
mkdir given.split given.merge
tp-shard split -q --tp 1 "$small" given.split/out
faults split tp-shard tp-shard split -q -f --tp 2 "$small" out

tp-shard merge -q want.split want.merge
kept_merge() { diff -r want.split two; }
done_merge() { diff -r want.merge w/out && only_out; }
cp -a want.split two
faults merge tp-shard tp-shard merge -q ../two out

tp-shard reshard -q --tp 1 want.split want.reshard
cp -a given.split given.reshard
kept_reshard() { kept_merge && [ -d w/out ] && { is_old w/out || diff -r want.reshard w/out; }; }
done_reshard() { diff -r want.reshard w/out && only_out; }
faults reshard tp-shard tp-shard reshard -q -f --tp 1 ../two out

# ---- sweeps ----

printf 'lr: loguniform(0.001, 1)\n' > s.yaml
printf '#!/bin/sh\necho "$1"\n' > trial
chmod +x trial
mkdir given.run
cp s.yaml trial given.run
(cd given.run && hpo-sweep run -q s.yaml -S journal:s.log --trials 2 --sampler random --seed 1 -- ./trial '{lr}') 2> err || cat err
# has_begun JOB - the journal begins as JOB found it, and each trial that is complete has its own value
has_begun() {
    cmp -n "$(wc -c < "given.$1/s.log")" "given.$1/s.log" w/s.log || return 1
    hpo-sweep show -S journal:w/s.log > shown
    awk '$2 == "COMPLETE" && $3 != $4 || $2 == "FAIL" && !/interrupted/ { bad = 1 } END { exit bad }' shown
}
kept_run() { has_begun run; }
done_run() { has_begun run && [ "$(grep -c COMPLETE shown)" = 4 ]; }
faults run hpo-sweep hpo-sweep run -q s.yaml -S journal:s.log --trials 4 --sampler random --seed 1 -- ./trial '{lr}'

cp -a given.run given.ask
kept_ask() { has_begun ask; }
done_ask() { has_begun ask && [ "$(grep -c RUNNING shown)" = 1 ]; }
faults ask hpo-sweep hpo-sweep ask -S journal:s.log --sampler random --seed 1 s.yaml

done_testing
