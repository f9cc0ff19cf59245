#!/bin/sh
# tp-run-torchrun.t - ranks that torchrun has started answer as local ones, and failures end all ranks
. "${top_srcdir:?}/tests/lib.sh"
models=$data/models
unset MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT

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
ok "by a rank that is not the first in silence" test ! -s err
run env MASTER_ADDR=localhost MASTER_PORT=$port RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate \
    --launcher torchrun --backend cpu --rank-timeout 1 --ids 5 --tp 2 "$models/llama-gqa"
status_is 4 "nor is a rank that never comes"
err_is "tp-run: rank 1 has not connected (--rank-timeout)" "by rank 0, which names it"
run env MASTER_PORT=$port RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate \
    --launcher torchrun --backend cpu --ids 5 --tp 2 "$models/llama-gqa"
status_is 3 "an address is needed"
err_is "tp-run: --launcher torchrun: no address is in MASTER_ADDR, which torchrun sets" "and asked for"

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
    sh -c 'grep -q "^1\.\.11$" ranks && ! grep "^not ok" ranks'
"$top_builddir/tests/tcp-ranks" $((port + 2)) 3 > ranks || :
ok "of an odd number, too" sh -c 'grep -q "^1\.\.11$" ranks && ! grep "^not ok" ranks'
run env TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 tp-run generate --backend cpu \
    --rank-timeout 1 --ids 5 --tp 2 "$models/llama-gqa"
status_is 4 "a rank that never comes is not waited for longer than --rank-timeout"
err_is "tp-run: rank 1 has not connected (--rank-timeout)" "and named"
run env TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 tp-run generate --backend cpu \
    --ids 5,6,7 --max-tokens 4 --tp 2 "$models/llama-gqa"
status_is 0 "one process of torchrun starts its ranks itself"
run tp-run generate --backend cpu --launcher torchrun --ids 5 --tp 2 "$models/llama-gqa"
status_is 3 "--launcher torchrun without torchrun is refused"
err_is "tp-run: --launcher torchrun: no number is in RANK, which torchrun sets" "with what is missing"
done_testing
