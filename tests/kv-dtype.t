#!/bin/sh
# kv-dtype - what a cache of bf16, of bytes, of FP8 or of 4 bits changes, and what it does not
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

# logits of 40 tokens in steps of one after a prompt, by way of generate's cache: the likelihood of a text
score() {
    tp-run score --json --window 256 "$@" "$bard/heldout.txt" "$bard"
}
score > f32
for pair in bf16:2e-4 int8:3e-3 fp8:3e-3 int4:1e-2; do
    type=${pair%:*}
    score --kv-dtype "$type" > "$type"
    ok "bard's likelihood with a cache of $type is within ${pair#*:} of that with f32" \
        near "$(json f32 nll)" "$(json "$type" nll)" "${pair#*:}"
    ok "and is another: the cache was read" test "$(json f32 nll)" != "$(json "$type" nll)"
done
score --kv-dtype f32 > same
ok "f32 is the default" cmp f32 same

for dir in "$data/models/llama-gqa" "$data/models/deepseek-v3" "$data/models/gpt-oss" "$data/models/bloom" \
    "$data/models/mistral-window"; do
    use_model "$dir"
    tp-run logits --ids "$ids" -o f32.safetensors "$dir"
    for pair in bf16:2e-2 int8:4e-2 fp8:1e-1 int4:4e-1; do
        type=${pair%:*}
        tp-run logits --kv-dtype "$type" --ids "$ids" -o "$type.safetensors" "$dir"
        case $name-$type in deepseek-v3-fp8 | deepseek-v3-int4) continue ;; esac # rounding chooses other experts
        ok "$name: logits with $type are within ${pair#*:}" "$compare" f32.safetensors "$type.safetensors" "${pair#*:}" logits
        tp-run logits --kv-dtype "$type" --pp 2 --ids "$ids" -o pp.safetensors "$dir"
        ok "$name: stages give the same bits with $type" cmp "$type.safetensors" pp.safetensors
    done
done

# a token's keys and values are rounded by themselves
use_model "$data/models/llama-gqa"
for pair in bf16:1e-5 int8:1e-4 fp8:1e-5 int4:1e-5; do # with int8, queries are rounded to 16 bits where the CPU has products of bytes
    type=${pair%:*}
    tp-run logits --deterministic --kv-dtype $type --ids "$ids" -o one.safetensors "$dir"
    for mesh in tp=2 sp=2 tp=2,pp=2; do
        tp-run logits --deterministic --kv-dtype $type --mesh $mesh --ids "$ids" -o many.safetensors "$dir"
        ok "--deterministic gives the same bits with $type over $mesh" cmp one.safetensors many.safetensors
    done
    tp-run logits --kv-dtype $type --ids "$ids" -o one.safetensors "$dir"
    tp-run logits --kv-dtype $type --sp 2 --sp-mode ring --ids "$ids" -o many.safetensors "$dir"
    ok "a ring reads what a rank does with $type" "$compare" one.safetensors many.safetensors "${pair#*:}" logits
    tp-run generate --json --deterministic --kv-dtype $type --prompt ROMEO: --prompt Q --prompt 'What is' \
        --max-tokens 12 "$bard" | sed 's/.*"ids":/"ids":/; s/,"tokens_per.*//' > together
    for prompt in ROMEO: Q 'What is'; do
        tp-run generate --json --deterministic --kv-dtype $type --prompt "$prompt" --max-tokens 12 "$bard" |
            sed 's/.*"ids":/"ids":/; s/,"tokens_per.*//'
    done > alone
    ok "texts are the same in a batch and alone with $type" cmp together alone
done

# bytes: as predicted
sizes='s/.*"weights":\([0-9]*\).*"kv_cache":\([0-9]*\).*/\1 \2/p'
for type in f32 bf16 int8 fp8 int4; do
    for tp in 1 2; do
        tp-run generate --report-memory --kv-dtype $type --tp $tp --ids "$(seq -s, 1 47)" --max-tokens 1 "$bard" 2>&1 > text |
            sed -n "$sizes" | sort -u > allocated
        mem-estimate infer --framework tp-run --kv-dtype $type --tp $tp --seq 48 --micro-batches 1 --json "$bard" |
            tr '{' '\n' | sed -n "$sizes" | sort -u > predicted
        ok "a cache of $type at tp $tp has as many bytes as predicted" cmp predicted allocated
    done
done
run tp-run generate --kv-dtype f16 --ids 3 "$bard"
status_is 2 "another type is a usage error"
err_has "--kv-dtype: expected f32, bf16, int8, fp8 or int4, not 'f16'" "that names those there are"
done_testing
