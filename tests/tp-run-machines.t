#!/bin/sh
# tp-run-machines.t - ranks on two machines that share nothing but a network meet, train, go on, and end when one machine dies
. "${top_srcdir:?}/tests/lib.sh"
. "$top_srcdir/tests/machines.sh"
unset MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
    LOCAL_SIZE SHARDUTILS_JOB_SECRET
trap 'machines_stop; chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
if ! machines_start; then
    skip "ranks on two machines meet" "$machines_why"
    done_testing
    exit
fi
[ -n "$machines_delay" ] || skip "each word between them takes 1 ms" "no netem in this kernel"
small=$data/models/llama-groups
for side in a b; do
    cp -r "$small" side-$side/model
    awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"ids\":[%d,4,5,6,%d,8,9,%d]}\n", 3 + i, 40 + i, 90 - i }' > side-$side/ids.jsonl
    # what a launcher does on each machine: FIRST COUNT WORLD COMMAND...
    # shellcheck disable=SC2016 # for the inner shell
    printf '%s\n' '#!/bin/sh' 'first=$1 count=$2 world=$3 i=0 pids= status=0' 'shift 3' \
        'export WORLD_SIZE=$world MASTER_ADDR=${MASTER_ADDR-10.213.7.1}' \
        'while [ $i -lt $count ]; do' \
        '    [ -z "$TORCHELASTIC_RUN_ID" ] || export LOCAL_RANK=$i LOCAL_WORLD_SIZE=$count' \
        '    RANK=$((first + i)) "$@" > out.$((first + i)) 2> err.$((first + i)) < /dev/null &' \
        '    pids="$pids $!" i=$((i + 1))' 'done' \
        'for pid in $pids; do wait $pid || status=$?; done' 'exit $status' > side-$side/start
    chmod +x side-$side/start
done

# both COMMAND...: as `run`, by two ranks on each machine, of which rank 0 is on a
port=29500
both() {
    port=$((port + 10)) status=0
    export MASTER_PORT=$port
    on b ./start 2 2 4 "$@" &
    other=$!
    on a ./start 0 2 4 "$@" || status=$?
    wait $other || status=$?
    unset MASTER_PORT
    cp side-a/out.0 out
    cat side-a/err.[01] side-b/err.[23] > err
}

export TORCHELASTIC_RUN_ID=a-run TORCHELASTIC_RESTART_COUNT=0 MASTER_ADDR=machine-a
set -- tp-run generate --backend cpu --threads 1 --ids 5,6,7 --ids 8,9 --max-tokens 6
"$@" "$small" > local
both timeout 60 "$@" --tp 2 --pp 2 model
status_is 0 "what torchrun starts on two machines is one job, though rank 0's names itself by a loopback address"
ok "with the text of one rank" cmp local out
err_empty "without a word besides"
unset TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT MASTER_ADDR
SHARDUTILS_JOB_SECRET=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export SHARDUTILS_JOB_SECRET
both timeout 60 "$@" --tp 2 --dp 2 model
status_is 0 "and so is what RANK and WORLD_SIZE alone number, with a secret"
ok "with the same text" cmp local out
err_empty "and without a word"

# where they listen: rank 2 does not come
port=$((port + 10))
MASTER_PORT=$port on b env WORLD_SIZE=3 RANK=1 MASTER_ADDR=10.213.7.1 timeout 30 "$@" --dp 3 model > out 2> err.b &
other=$!
MASTER_PORT=$port on a env WORLD_SIZE=3 RANK=0 MASTER_ADDR=10.213.7.1 timeout 30 "$@" --dp 3 model > out 2> err &
first=$!
tries=0
listens() { on "$1" sh -c 'cat /proc/net/tcp /proc/net/tcp6' | awk '$4 == "0A" { print $2 }'; }
while [ "$(listens b)" = "" ] && [ $tries -lt 300 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
ok "rank 0 listens on the address in MASTER_ADDR alone" test "$(listens a)" = "0107D50A:$(printf '%04X' $((port + 1)))"
ok "and another on that by which it reaches rank 0" test "$(listens b | cut -d: -f1)" = 0207D50A
# shellcheck disable=SC2016 # for the inner shell
on a sh -c 'kill $(pidof tp-run)'
wait $first || :
status=0
wait $other || status=$?
cp err.b err
status_is 4 "a rank that waits for another ends when rank 0 has gone"
err_is "tp-run: rank 0 has gone while the ranks met" "with one line"

# training; only rank 0's machine has the run
set -- tp-run train -q --threads 1 --data ids.jsonl --seq 16 --lr-schedule constant --lr 1e-3 --save-every 3
both timeout 60 "$@" --tp 2 --dp 2 --steps 6 -o run model
status_is 0 "they train"
(cd side-a && "$@" --tp 2 --dp 2 --steps 6 -o near model)
ok "to the bits of local ranks" cmp side-a/run/step-000006/rank-tp1-pp0.safetensors side-a/near/step-000006/rank-tp1-pp0.safetensors
ok "and write where rank 0 is alone" test ! -e side-b/run
rm -rf side-a/run/step-000006
mkdir side-b/run
cp -r side-a/run/run.json side-a/run/step-000003 side-b/run
both timeout 60 tp-run train -q --threads 1 --resume --zero 1 -o run
status_is 0 "they go on from a copy, and share the optimizer's state"
ok "to the same bits" cmp side-a/run/step-000006/rank-tp1-pp0.safetensors side-a/near/step-000006/rank-tp1-pp0.safetensors

# the other machine's replicas share the state of the stage that they send to rank 0
both timeout 60 "$@" --pp 2 --dp 2 --zero 1 --steps 3 -o stages model
status_is 0 "state that is shared on the machine without the run is saved"
(cd side-a && "$@" --pp 2 --dp 2 --steps 3 -o near2 model)
ok "to the bits of local ranks that do not share it" sh -c "cmp side-a/stages/step-000003/rank-tp0-pp1.safetensors side-a/near2/step-000003/rank-tp0-pp1.safetensors && test ! -e side-b/stages"

if command -v mpirun > which 2>&1 && tp-run --version | grep -q +mpi; then
    # mpirun sees processes of both machines, so /proc is that of neither; the agent is its remote shell: HOST COMMAND...
    enter='--mount --uts --ipc --net unshare --mount sh -c'
    # shellcheck disable=SC2016 # for the inner shell
    printf '%s\n' '#!/bin/sh' 'shift' "exec nsenter --target $(cat machine-b.pid) $enter \\" \
        '    "mount --bind /mnt/outside /proc && cd /mnt/here && $*"' > side-a/agent
    chmod +x side-a/agent
    cp side-a/agent side-b # which looks for it, too
    rm -rf side-b/run
    status=0
    # MPI's plugins leave memory behind that a sanitizer would count as ours
    # shellcheck disable=SC2086,SC2016 # words are wanted; for the inner shell
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 nsenter --target "$(cat machine-a.pid)" $enter \
        'mount --bind /mnt/outside /proc && cd /mnt/here && exec "$@"' sh \
        mpirun --host 10.213.7.1:2,10.213.7.2:2 -n 4 --oversubscribe --mca plm_rsh_agent /mnt/here/agent --mca btl tcp,self \
        --mca pml ob1 --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 -x PATH -x ASAN_OPTIONS \
        "$@" --tp 2 --dp 2 --steps 6 -o mpi model > out 2> err || status=$?
    status_is 0 "ranks of mpirun train on two machines"
    ok "to the same bits" cmp side-a/mpi/step-000006/rank-tp1-pp0.safetensors side-a/near/step-000006/rank-tp1-pp0.safetensors
else
    skip "ranks of mpirun train on two machines" "no mpirun, or built without MPI"
fi

# a machine that dies in the midst of a training
port=$((port + 10))
export MASTER_PORT=$port
on b ./start 2 2 4 timeout 60 "$@" --tp 2 --dp 2 --steps 100000 -o dead model > out.b 2>&1 &
other=$!
on a ./start 0 2 4 timeout 60 "$@" --tp 2 --dp 2 --steps 100000 -o dead model > out.a 2>&1 &
first=$!
tries=0
while ! ls -d side-a/dead/step-?????? > saved 2>&1 && [ $tries -lt 1500 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
ok "they train again, and save" test -s side-a/dead/log.jsonl
machine_kill b
start=$(date +%s)
status=0
wait $first || status=$?
took=$(($(date +%s) - start))
wait $other 2> killed || :
status_is 4 "when one machine dies the ranks of the other end"
ok "within a minute" test $took -le 60
cat side-a/err.[01] > err
err_lines 1 "with one line"
ok "that names a rank of it" grep -Eq "^tp-run: rank [23] is gone: " err
ok "no process of theirs is left" on a sh -c '! pidof tp-run'
ok "no connection and no listener" on a sh -c '! grep -E "^ *[0-9]+: [0-9A-F:]+ [0-9A-F:]+ (01|02|03|0A) " /proc/net/tcp /proc/net/tcp6'
# shellcheck disable=SC2016 # for the inner shell
ok "and no shared memory" on a sh -c 'test -z "$(ls /dev/shm)" && test "$(wc -l < /proc/sysvipc/shm)" = 1'
ok "the last checkpoint is whole" tp-shard verify "$(printf "%s\n" side-a/dead/step-?????? | tail -n 1)"
done_testing
