#!/bin/sh
# tp-shard-pad.t - a vocabulary that is padded for equal ranks
. "${top_srcdir:?}/tests/lib.sh"

# comes_back MODEL TP N - split with padding, verified and merged, is the original
comes_back() {
    rm -rf cut again
    tp-shard split --tp "$2" --pad-vocab "$3" "$1" cut && tp-shard verify cut &&
        tp-shard verify --against "$1" cut && tp-shard merge cut again &&
        for weights in again/*.safetensors; do
            cmp "$weights" "$1/${weights##*/}" || return 1
        done
}

for model in "$data"/models/*/ "$data"/models/*/hf/; do
    ls "$model"/*.safetensors > /dev/null 2>&1 || continue
    name=${model%/}
    for n in 1 48; do
        ok "${name##*/} comes back from tp 2 padded to multiples of $n" comes_back "$model" 2 "$n"
    done
done

# answers_alike MODEL - what tp-run makes of it is the same, padded on two ranks or whole
answers_alike() {
    rm -rf cut
    tp-shard split -q --tp 2 --pad-vocab 7 "$1" cut && tp-run logits --tp 1 --ids 1,2,3 -o whole.st "$1" &&
        tp-run logits --ids 1,2,3 -o padded.st cut &&
        "$top_builddir/tests/compare-tensors" whole.st padded.st 1e-5 logits
}

for model in "$data"/models/*/; do
    [ -f "$model/config.json" ] && tp-run logits --tp 1 --ids 1,2,3 -o whole.st "$model" 2> err &&
        tp-shard show whole.st | grep -q '^logits ' || continue
    name=${model%/}
    ok "${name##*/} gives the same logits when it is padded" answers_alike "$model"
done
for tp in 1 3 6; do
    ok "bard comes back from tp $tp padded to multiples of 1000" comes_back "$bard" "$tp" 1000
    run tp-run score "$heldout" cut
    out_has "nll $heldout_nll" "and scores as ever on $tp ranks, some without a row"
done
run tp-run score --tp 2 "$heldout" cut
out_has "nll $heldout_nll" "on other ranks than it was cut for as well"
tp-run generate --max-tokens 12 --prompt ROMEO: "$bard" > want
tp-run generate --max-tokens 12 --prompt ROMEO: cut > got
ok "it generates the same text" diff want got

tp-shard split --tp 3 --pad-vocab 64 "$bard" three
tp-shard show --json three/rank-tp2-pp0.safetensors > out
out_has '"name":"lm_head.weight","dtype":"BF16","shape":[384,192]' "every rank has equally many rows"
tp-shard plan --tp 3 --pad-vocab 64 --json "$bard" > out
out_has '"part":2,"tp":2,"ep":0,"pp":0,"dtype":"BF16","shape":[384,192]' "as was planned"
tp-shard reshard --tp 2 three two
tp-shard split --tp 2 --pad-vocab 64 "$bard" want2
ok "reshard keeps the padding" diff -r want2 two
tp-shard reshard --tp 2 --pad-vocab 0 three two0
tp-shard split --tp 2 "$bard" want0
ok "and takes it away for 0" diff -r want0 two0
ok "padded and plain checkpoints do not differ" tp-shard diff three want0
size=$(wc -c < three/rank-tp2-pp0.safetensors)
cp -r three damaged
head -c 8 three/rank-tp2-pp0.safetensors | od -An -tu8 | tr -d ' ' > header
tp-shard show --json damaged/rank-tp2-pp0.safetensors | grep -q embed_tokens
printf '\001' | dd of=damaged/rank-tp2-pp0.safetensors bs=1 \
    seek=$((8 + $(cat header) + 384 * 192 * 2 - 2)) conv=notrunc 2> /dev/null
ok "the size is as it was" test "$(wc -c < damaged/rank-tp2-pp0.safetensors)" = "$size"
run tp-shard verify damaged
status_is 1 "a flipped bit of padding is found"
run tp-shard merge damaged out.dir
status_is 3 "and refused"

run tp-shard split --tp 2 --pad-vocab -1 "$bard" never
status_is 2 "a negative multiple is a usage error"
run tp-shard split --tp 2 --pad-vocab 99999999 "$bard" never
status_is 2 "an absurd one as well"
ok "nothing was written" test ! -e never
done_testing
