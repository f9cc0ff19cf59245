#!/bin/sh
# mapped - weights that lie in files as they are wanted are used there
. "${top_srcdir:?}/tests/lib.sh"

tp-shard split -q --tp 1 "$bard" whole
tp-shard split -q --tp 2 "$bard" halves
# a table of 3 MiB, of which 384 KiB are the vocabulary
tp-shard split -q --tp 1 --pad-vocab 8192 "$bard" padded
greedy() {
    tp-run generate --max-tokens 20 --prompt ROMEO: "$@"
}
greedy "$bard" > expected
for how in "whole" "halves" "padded" "--tp 2 whole" "--tp 1 halves" "--tp 2 $bard" "--pp 2 $bard"; do
    # shellcheck disable=SC2086 # words are wanted
    greedy $how > got
    ok "the text of ${how#"--"} is that of the original" cmp expected got
done

# pytorch_model.bin, where some tensors are views of others, or transposed
tp-run logits --ids 3,4,5 -o plain "$data/models/llama-gqa"
ok "weights of a pickle are used as they lie where that is their order" tp-run logits --ids 3,4,5 -o pickled "$data/pickles/model"
ok "and give the same logits" cmp plain pickled

# a byte of a tensor
damage() {
    rm -rf damaged
    cp -R "$1" damaged
    chmod -R u+w damaged
    file=damaged/rank-tp$2-pp0.safetensors
    size=$(wc -c < "$file")
    printf '\377\377' | dd of="$file" bs=1 seek=$((size - $3)) conv=notrunc 2> dd.err
}
for what in "whole 0" "halves 1" "padded 0"; do
    # shellcheck disable=SC2086 # words are wanted
    damage $what 100
    run tp-run generate --max-tokens 3 --prompt ROMEO: damaged
    status_is 3 "a byte that is wrong in $what ends the run"
    ok "before a token is printed" test ! -s out
    err_lines 1 "in one line"
    err_has "is damaged: its CRC-32 is" "that says so"
    run tp-run score "$bard/heldout.txt" damaged
    status_is 3 "and a score is not told"
    ok "at all" test ! -s out
done

# cut short while it runs: again, where the text was complete before
try=0
status=0
while [ $try -lt 10 ] && [ $status -eq 0 ]; do
    try=$((try + 1))
    rm -rf short
    cp -R "$bard" short
    chmod -R u+w short
    tp-run score --window 64 "$bard/heldout.txt" short > out 2> err &
    pid=$!
    sleep 0.$try
    : > short/model.safetensors
    status=0
    wait $pid || status=$?
done
case $status in
3) pass "a file that is cut short while it is opened ends the run" ;;
*) status_is 4 "a file that is cut short while it runs ends the run" ;;
esac
err_lines 1 "in one line"
err_has "model.safetensors" "that names the file"
done_testing
