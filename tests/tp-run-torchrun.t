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
        env MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID="$PWD" TORCHELASTIC_RESTART_COUNT=0 \
            RANK=$rank WORLD_SIZE="$n" LOCAL_RANK=$rank LOCAL_WORLD_SIZE="${here-$n}" \
            timeout 60 "$@" > out.$rank 2>> err < /dev/null &
        others="$others $!"
    done
    env MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID="$PWD" TORCHELASTIC_RESTART_COUNT=0 \
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
here=1
torch 2 tp-run generate --backend cpu --ids 5 --tp 2 "$models/llama-gqa"
status_is 3 "ranks on two machines are refused"
err_is "tp-run: torchrun has started 1 ranks on this machine of 2: its ranks find one another on one machine only; mpirun and srun start them on several" \
    "with one line that says who can"
unset here
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
