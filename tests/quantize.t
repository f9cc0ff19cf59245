#!/bin/sh
# quantize - --weights int8 and int4: products by codes that are made at load
. "${top_srcdir:?}/tests/lib.sh"

bard=$top_srcdir/examples/bard

# logits OUT OPTION... - of $dir
logits() {
    out=$1
    shift
    tp-run logits --ids "$ids" --weights "$type" -o "$out" "$@" "$dir"
}
near() {
    "$top_builddir/tests/compare-tensors" "$1" "$2" "$3" logits
}

# fused layouts, x W (gpt2), experts (also in one tensor), latent attention
while read -r model ids far; do
    dir=$data/models/$model
    type=int8
    tp-run logits --ids "$ids" -o stored "$dir"
    logits one
    ok "$model in int8 is near the stored weights" near stored one "$far"
    run cmp -s stored one
    status_is 1 "$model: they are not the same"
    logits many --threads 2 --pp 2
    ok "$model: the same bits in stages and threads" cmp one many
    logits many --tp 2
    ok "$model: ranks have the codes of one" near one many 1e-5
    logits one --deterministic
    logits many --deterministic --tp 2
    ok "$model: with --deterministic the same bits" cmp one many
done << 'EOM'
llama-gqa 1,5,3,2,7,4,9 0.05
gpt2-untied 1,5,3,2,7,4,9 0.05
llama4 1,5,3,2,7,4,9 0.05
mixtral 1,5,3,2,7,4,9 0.05
deepseek-v2 1,5,3,2,7,4,9 0.05
falcon-groups 1,5,3,2,7,4,9 0.05
EOM

dir=$bard ids=1,50,30,2,70,400,9
for type in int8 int4; do
    far=1e-5
    logits one
    logits many --threads 2 --pp 2
    ok "bard in $type: the same bits in stages and threads" cmp one many
    logits many --tp 2
    ok "bard in $type: ranks have the codes of one" near one many $far
    logits one --deterministic
    logits many --deterministic --tp 2 --threads 2
    ok "bard in $type: with --deterministic the same bits" cmp one many
done

score() {
    tp-run score --json --window 256 "$@" "$heldout" "$bard" | sed 's/.*"perplexity":\([^,]*\),.*/\1/'
}
stored=$(score)
within() {
    awk -v a="$stored" -v b="$2" -v part="$1" 'BEGIN { exit !(b < a * (1 + part) && b > a * (1 - part)) }'
}
ok "bard in int8: perplexity within 0.5 %" within 0.005 "$(score --weights int8)"
ok "bard in int4: within 3 %" within 0.03 "$(score --weights int4)"
ok "bard in int4 with rounded activations: within 3 %" within 0.03 "$(score --weights int4 --compute bf16)"

# many rows of codes are widened to bf16, on CPUs with products of these
many=$(seq -s, 2 300)
for type in int8 int4; do
    logits() {
        tp-run logits --ids "$many" --weights $type "$@" "$bard"
    }
    logits -o exact
    logits -o rounded --compute bf16 --threads 1
    ok "many rows in $type: near those whose activations are not rounded" \
        "$top_builddir/tests/compare-tensors" exact rounded 0.02 logits
    logits -o again --compute bf16 --threads 2 --pp 2
    ok "many rows in $type: the same bits on stages and threads" cmp rounded again
    logits -o whole --deterministic
    logits -o again --deterministic --compute bf16
    ok "many rows in $type: not rounded with --deterministic" cmp whole again
done

weights() {
    tp-run generate --report-memory --ids 1 --max-tokens 1 --weights "$1" "$bard" 2>&1 > text |
        sed -n 's/.*"weights":\([0-9]*\).*/\1/p'
}
# 405,504 elements a layer, of 2,304 outputs; the head has 1024 x 192
codes=$((6 * 405504 + 1024 * 192)) outputs=$((6 * (192 + 96 + 96 + 192 + 512 + 512 + 192) + 1024))
rest=$((2 * (1024 * 192 + 13 * 192)))
ok "int8 takes a byte for each number and four for each output" test "$(weights int8)" -eq $((codes + 4 * outputs + rest))
ok "int4 takes 4.5 bits for each number" test "$(weights int4)" -eq $((codes / 2 + codes / 16 + rest))

# allocated TYPE TP MODEL
allocated() {
    tp-run generate --report-memory --tp "$2" --ids 1,2 --max-tokens 1 --weights "$1" "$3" 2>&1 > text |
        sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u
}
predicted() {
    mem-estimate infer --framework tp-run --weights "$1" --tp "$2" --seq 4 --json "$3" |
        tr '{' '\n' | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u
}
for dir in "$bard" "$data/models/gpt2-untied" "$data/models/mixtral" "$data/models/llama4"; do
    for type in int8 int4; do
        for tp in 1 2; do
            allocated $type $tp "$dir" > seen
            [ -s seen ] || continue # blocks are divided
            predicted $type $tp "$dir" > expected
            ok "${dir##*/} in $type at tp $tp: as many bytes as predicted" cmp expected seen
        done
    done
done

run tp-run generate --ids 1 --weights int3 "$bard"
status_is 2 "an unknown type is a usage error"
run tp-run generate --ids 1 --max-tokens 1 --weights int4 --tp 3 "$bard"
status_is 1 "a layout that divides blocks is refused"
err_has "mlp.down_proj.weight: this layout divides a block of 32 inputs" "and says where"
err_has "whole blocks at tp: 1, 2" "and at which tp there are whole ones"
run tp-run train --weights int8 --steps 1 "$bard"
status_is 2 "training has no such option"

done_testing
