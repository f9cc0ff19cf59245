#!/bin/sh
# tp-run-torchrun.t - ranks that torchrun or variables number answer as local ones, and failures end all ranks
. "${top_srcdir:?}/tests/lib.sh"
models=$data/models
unset MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
    LOCAL_SIZE SHARDUTILS_JOB_SECRET

# torch N COMMAND...: as `run`, on N ranks with what torchrun sets; all ranks' lines are in err
torch() {
    n=$1
    shift
    rank=$n status=0 others=''
    : > err
    while [ "$rank" -gt 1 ]; do
        rank=$((rank - 1))
        env MASTER_ADDR=localhost MASTER_PORT="${port-29500}" TORCHELASTIC_RUN_ID="$PWD" TORCHELASTIC_RESTART_COUNT=0 \
            RANK=$rank WORLD_SIZE="$n" LOCAL_RANK=$((rank % ${here-$n})) LOCAL_WORLD_SIZE="${here-$n}" \
            timeout 60 "$@" > out.$rank 2>> err < /dev/null &
        others="$others $!"
    done
    env MASTER_ADDR=localhost MASTER_PORT="${port-29500}" TORCHELASTIC_RUN_ID="$PWD" TORCHELASTIC_RESTART_COUNT=0 \
        RANK=0 WORLD_SIZE="$n" LOCAL_RANK=0 LOCAL_WORLD_SIZE="${here-$n}" \
        timeout 60 "$@" > out 2>> err < /dev/null || status=$?
    for rank in $others; do
        wait "$rank" || :
    done
}

for mesh in "--tp 2" "--pp 2" "--dp 2" "--tp 2 --pp 2"; do
    n=$(echo "$mesh" | tr ' ' '\n' | awk 'BEGIN { n = 1 } /^[0-9]/ { n *= $1 } END { print n }')
    tp-run generate --backend cpu --ids 5,6,7 --ids 8,9 --max-tokens 4 $mesh "$models/llama-gqa" > local
    torch "$n" tp-run generate --backend cpu --ids 5,6,7 --ids 8,9 --max-tokens 4 $mesh "$models/llama-gqa"
    status_is 0 "$n ranks of torchrun are those of $mesh"
    ok "and give the text of local ones" cmp local out
    err_empty "without a word besides"
    ok "which the first alone prints" sh -c 'test ! -s out.1'
done

torch 2 tp-run generate --backend cpu --ids 5 --tp 3 "$models/llama-gqa"
status_is 3 "a layout of other ranks is refused"
err_is "tp-run: 2 ranks have been started for a layout of 3" "with one line"
torch 2 tp-run generate --backend cpu --ids 5 --tp 2 no-model
status_is 3 "a model that is not there ends all ranks"
ok "with one line" test "$(wc -l < err)" -eq 1

# machines of $here ranks each: they share no memory, and meet by TCP
port=$((20000 + $$ % 10000))
here=1
for mesh in "--tp 2" "--tp 2 --pp 2" "--dp 2" "--sp 2"; do
    n=$(echo "$mesh" | tr ' ' '\n' | awk 'BEGIN { n = 1 } /^[0-9]/ { n *= $1 } END { print n }')
    [ "$n" -lt 4 ] || here=2
    port=$((port + 2))
    tp-run generate --backend cpu --ids 5,6,7 --ids 8,9 --max-tokens 4 $mesh "$models/llama-gqa" > local
    torch "$n" tp-run generate --backend cpu --ids 5,6,7 --ids 8,9 --max-tokens 4 $mesh "$models/llama-gqa"
    status_is 0 "ranks on two machines are those of $mesh"
    ok "and give the text of local ones" cmp local out
    err_empty "without a word besides"
done
here=1
port=$((port + 2))
torch 2 tp-run generate --backend cpu --ids 5 --tp 2 no-model
status_is 3 "a model that is not there ends the ranks of both"
ok "with one line" test "$(wc -l < err)" -eq 1
port=$((port + 2))
: > empty
torch 2 tp-run score --backend cpu --tp 2 empty "$models/stories260K/hf"
status_is 3 "and so does an input that only rank 0 reads"
ok "with one line" test "$(wc -l < err)" -eq 1
port=$((port + 2))
run env MASTER_ADDR=localhost MASTER_PORT=$port RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate \
    --launcher torchrun --backend cpu --rank-timeout 1 --ids 5 --tp 2 "$models/llama-gqa"
status_is 4 "rank 0 of another machine is not waited for longer than --rank-timeout"
err_is "tp-run: rank 0 has not answered rank 1 at localhost port $((port + 1)) (--rank-timeout)" \
    "by the first rank of its machine, which says so"
run env MASTER_ADDR=localhost MASTER_PORT=$port RANK=2 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 tp-run generate \
    --launcher torchrun --backend cpu --rank-timeout 1 --ids 5 --tp 4 "$models/llama-gqa"
err_empty "and by the others in silence"
run env MASTER_ADDR=localhost MASTER_PORT=$port RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate \
    --launcher torchrun --backend cpu --rank-timeout 1 --ids 5 --tp 2 "$models/llama-gqa"
status_is 4 "nor is a rank that never comes"
err_is "tp-run: rank 1 has not connected (--rank-timeout)" "by rank 0, which names it"
run env MASTER_PORT=$port RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate \
    --launcher torchrun --backend cpu --ids 5 --tp 2 "$models/llama-gqa"
status_is 2 "an address is needed"
err_has "tp-run: --launcher torchrun: MASTER_ADDR is not set" "and asked for"

# a rank that is killed, when the first has begun to print
for i in 1 2 3 4 5 6 7 8; do head -n 60 "$bard/heldout.txt"; done > lines
port=$((port + 2)) others=''
for rank in 0 1; do
    env MASTER_ADDR=localhost MASTER_PORT=$port TORCHELASTIC_RUN_ID="$PWD" RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 \
        LOCAL_WORLD_SIZE=1 tp-run generate --backend cpu --tp 2 --temperature 1 --max-tokens 400 --input lines "$bard" \
        > out.$rank 2> err.$rank < /dev/null &
    others="$others $!"
done
# shellcheck disable=SC2086 # two words
set -- $others
while [ ! -s out.0 ] && kill -0 "$1" 2> /dev/null; do sleep 0.01; done
kill -KILL "$2"
status=0
wait "$1" || status=$?
status_is 4 "a rank that is killed ends those of other machines"
wait "$2" 2> killed || :
ok "with one line that names it" grep -q "^tp-run: rank 1 is gone: " err.0
unset here

port=$((port + 2))
"$top_builddir/tests/tcp-ranks" $port 4 > ranks || :
sed 's/^ok [0-9]* - /ok - /; s/^not ok [0-9]* - /not ok - /' ranks | while read -r line; do echo "# $line"; done
ok "collectives over TCP are those of other ranks, whoever disturbs and ends" \
    sh -c 'grep -q "^1\.\.22$" ranks && ! grep "^not ok" ranks'
"$top_builddir/tests/tcp-ranks" $((port + 2)) 3 > ranks || :
ok "of an odd number, too" sh -c 'grep -q "^1\.\.22$" ranks && ! grep "^not ok" ranks'
run env TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 tp-run generate --backend cpu \
    --rank-timeout 1 --ids 5 --tp 2 "$models/llama-gqa"
status_is 4 "a rank that never comes is not waited for longer than --rank-timeout"
err_is "tp-run: rank 1 has not connected (--rank-timeout)" "and named"
run env TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate --backend cpu \
    --ids 5,6,7 --max-tokens 4 --tp 2 "$models/llama-gqa"
status_is 0 "one process of torchrun starts its ranks itself"
run tp-run generate --backend cpu --launcher torchrun --ids 5 --tp 2 "$models/llama-gqa"
status_is 2 "--launcher torchrun without torchrun is refused"
err_has "tp-run: --launcher torchrun: RANK is not set" "with what is missing"

# numbered N COMMAND...: as `torch`, on N ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT alone
numbered() {
    n=$1
    shift
    rank=$n status=0 others=''
    port=$((port + 2))
    : > err
    while [ "$rank" -gt 1 ]; do
        rank=$((rank - 1))
        MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=$rank WORLD_SIZE=$n timeout 60 "$@" > out.$rank 2>> err < /dev/null &
        others="$others $!"
    done
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=0 WORLD_SIZE=$n timeout 60 "$@" > out 2>> err < /dev/null || status=$?
    for rank in $others; do
        wait "$rank" || others_failed=1
    done
}
others_failed=0
set -- tp-run generate --backend cpu --ids 5,6,7 --ids 8,9 --max-tokens 4
"$@" --tp 3 "$models/llama-gqa" > local
numbered 3 "$@" --tp 3 "$models/llama-gqa"
status_is 0 "processes that RANK and WORLD_SIZE number are ranks of one job"
ok "and give the text of local ones" cmp local out
err_empty "without a word besides"
ok "which the first alone prints" sh -c 'test ! -s out.1 && test ! -s out.2'
# each finds its place on the machine in LOCAL_RANK, or by asking the others
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' 'LOCAL_RANK=$RANK LOCAL_SIZE=$WORLD_SIZE exec "$@"' > each
chmod +x each
numbered 2 ./each "$@" --launcher env --tp 2 "$models/llama-gqa"
status_is 0 "--launcher env joins the ranks of DeepSpeed's launcher, on one machine by shared memory"
"$@" --tp 2 "$models/llama-gqa" > local
ok "with the same text" cmp local out
SHARDUTILS_JOB_SECRET='a secret' numbered 2 "$@" --tp 2 "$models/llama-gqa"
status_is 0 "ranks that have the job's secret meet"
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' 'SHARDUTILS_JOB_SECRET=$RANK exec "$@"' > each
numbered 2 ./each "$@" --rank-timeout 2 --tp 2 "$models/llama-gqa"
status_is 4 "ranks that have another do not"
err_has "tp-run: rank 0, at port $((port + 1)) of 127.0.0.1, has another secret than rank 1 (SHARDUTILS_JOB_SECRET)" "which says why"
err_has "tp-run: rank 1 has not connected (--rank-timeout); a process that does not have the job's secret was refused" \
    "and is not waited for longer than --rank-timeout"

# variables that are missing or cannot be: NAME VALUE... WHAT
refused() {
    what=$1
    shift
    run env "$@" tp-run generate --backend cpu --ids 5 --tp 2 "$models/llama-gqa"
    status_is 2 "$* is refused"
    err_has "tp-run: RANK or WORLD_SIZE asks for ranks of another launcher, but $what (--launcher local ignores these variables)" \
        "by name"
    ok "and nothing runs" test ! -s out
}
refused 'RANK is 2 and WORLD_SIZE is 2' RANK=2 WORLD_SIZE=2
refused 'RANK is 1 and WORLD_SIZE is 1' RANK=1 WORLD_SIZE=1
refused 'RANK is not set' WORLD_SIZE=2
refused 'WORLD_SIZE is not set' RANK=1
refused "RANK is 'one', not a number" RANK=one WORLD_SIZE=2
refused "WORLD_SIZE is '', not a number" RANK=0 WORLD_SIZE=
refused 'MASTER_ADDR is not set' RANK=0 WORLD_SIZE=2
refused 'MASTER_PORT is not set' RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost
refused 'MASTER_PORT is 65535: 1 to 65534 can be, because the ranks meet on the next port' RANK=0 WORLD_SIZE=2 \
    MASTER_ADDR=localhost MASTER_PORT=65535
refused "LOCAL_RANK is '-1', not a number" RANK=0 WORLD_SIZE=2 LOCAL_RANK=-1
refused 'LOCAL_RANK is 1 and LOCAL_WORLD_SIZE is 1' RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1
refused 'LOCAL_WORLD_SIZE is 3 and WORLD_SIZE is 2' RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_SIZE=3
run env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 SHARDUTILS_JOB_SECRET= tp-run generate --backend cpu \
    --ids 5 --tp 2 "$models/llama-gqa"
status_is 2 "a secret that is empty is refused"
err_has "tp-run: SHARDUTILS_JOB_SECRET is empty" "with one line"
run env RANK=0 WORLD_SIZE=2 tp-run generate --launcher env --backend cpu --ids 5 --tp 2 "$models/llama-gqa"
status_is 2 "--launcher env needs its variables"
err_has "tp-run: --launcher env: MASTER_ADDR is not set" "and names the one that is missing"
# a notebook or a container may have them for one process; --launcher local ignores them
for set in "RANK=0 WORLD_SIZE=1" "RANK=0" "WORLD_SIZE=1" "RANK=captain" "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0"; do
    # shellcheck disable=SC2086 # words are wanted
    run env $set "$@" --tp 2 "$models/llama-gqa"
    status_is 0 "$set runs as without"
    ok "with the same text" cmp local out
done
run env RANK=2 WORLD_SIZE=2 "$@" --launcher local --tp 2 "$models/llama-gqa"
status_is 0 "and so does --launcher local"
ok "with the same text again" cmp local out

# where rank 0 listens
port=$((port + 2))
hex=$(printf '%04X' $((port + 1)))
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.2 MASTER_PORT=$port timeout 20 "$@" --tp 2 "$models/llama-gqa" > out 2> err < /dev/null &
first=$!
tries=0
while ! grep -qs ":$hex .* 0A " /proc/net/tcp /proc/net/tcp6 && [ $tries -lt 500 ]; do
    sleep 0.01
    tries=$((tries + 1))
done
grep -hs ":$hex [0-9A-F]*:[0-9A-F]* 0A " /proc/net/tcp /proc/net/tcp6 | awk '{ print $2 }' > listens
kill $first
wait $first || :
if [ -s listens ]; then
    ok "rank 0 listens on the address in MASTER_ADDR alone" sh -c "test \"\$(cat listens)\" = 0200007F:$hex"
else
    skip "rank 0 listens on the address in MASTER_ADDR alone" "/proc/net/tcp does not show it"
fi

# many
run "$top_builddir/tests/tcp-ranks" $((port + 2)) 128
status_is 0 "128 ranks on one machine meet by TCP"
port=$((port + 2))
if [ -z "${SHORT-}" ]; then
    "$@" "$models/llama-gqa" > local
    numbered 65 "$@" --threads 1 --dp 65 "$models/llama-gqa"
    status_is 0 "65 ranks of tp-run do"
    ok "and give the text of one" cmp local out
    err_is "tp-run: 65 ranks have a TCP connection each to each: MPI (--launcher mpi) or NCCL (--comm nccl) serves so many better" \
        "with one line that names what serves them better"
fi
done_testing
