#!/bin/sh
# tp-run-program.t - the compiled program of a rank, and what it costs
. "${top_srcdir:?}/tests/lib.sh"

models=$data/models

run tp-run program --tp 2 "$bard"
status_is 0 "a program is printed"
err_empty "and nothing else"
out_has "rank 0 of 2, per token of 512:" "its rank and what is counted are told first"
out_has "%1 [tokens][192] f32 replicated = all-reduce(%0 [tokens][192] f32 partial) over tp; rows 1, bytes 768, FLOPs 0" \
    "a collective is an instruction with operands, placements and bytes"
out_has "# layer.0.a = attention(q, k, v, causal, window = window, dropout = drop_attention)" "lines of the family stand beside theirs"
out_has "total: instructions 129," "the total ends it"

# A config alone is enough, without any weights
shape olmo-2-7b
run tp-run program --tp 2 --json olmo-2-7b.json
status_is 0 "a config alone is compiled as well"
ok "each instruction is an object" \
    test "$(grep -c '^{"type":"instruction",.*}$' out)" -eq "$(sed -n 's/.*"type":"program".*"instructions":\([0-9]*\).*/\1/p' out)"
# 32 layers of four sums, two of which are of norms; the embedding's
ok "the sums of norms over a cut axis are among the collectives" \
    grep -q '"op":"all-reduce","over":"tp","group":2,"count":129,' out
ok "and so is the likelihood's gather" grep -q '"op":"all-gather","over":"tp","group":2,"count":1,' out

run tp-run program --pp 2 "$bard"
ok "each stage has its program" test "$(grep -c '^rank ' out)" -eq 2
out_has "receive %" "with what it receives"
out_has "send %" "and sends"
run tp-run program --tp 2 --rank 1 "$bard"
out_has "rank 1 of 2," "any rank's can be asked for"
run tp-run program --tp 2 --rank 2 "$bard"
status_is 2 "but not one that is not there"
err_lines 2 "which is a usage error"
run tp-run program --tp 2 --train "$bard"
status_is 0 "the program that is trained is printed"
out_has "[192][128] f32 gradient of model.layers.0.self_attn.o_proj.weight = outer(" "with the gradients of weights"
# The FLOPs of a program without attention's
products() {
    tail -n 1 out | sed 's/.*FLOPs \([0-9]*\) (attention \([0-9]*\))/\1 \2/' | awk '{ print $1 - $2 }'
}
trained=$(products)
run tp-run program --tp 2 "$bard"
ok "whose products are three times those of the likelihood" test "$trained" -eq $((3 * $(products)))
run tp-run program --pp 2 --train "$bard"
out_has "receive back %" "what a stage receives back"
out_has "send back %" "and sends back"
run tp-run program --sp 2 --train "$bard"
out_has "attention_back" "ranks that share a sequence have its derivative"
run tp-run program --tp 1000 "$bard"
status_is 1 "a layout that does not fit is said to be one"
run tp-run program "$bard/nowhere"
status_is 3 "and a file that is not there is bad input"

# What bench counts of a step is told by what it prints: its share of the machine's rate, and the time
counted() {
    tp-run bench -q --json --tokens 16 --repeat 1 --threads 1 "$1" > bench.json &&
        awk '{ n = split($0, part, "\"prefill\":"); for (i = 2; i <= n; i++) s += part[i] + 0
            split($0, v, "\"product\":"); split($0, w, "\"prefill_share\":")
            printf "%.0f\n", s * (v[2] + 0) * (w[2] + 0) }' bench.json
}
# The instructions of a step of 16 tokens, of which one row is wanted
folded() {
    tp-run program --json --tokens 16 "$1" | awk '/"type":"instruction"/ {
        split($0, v, "\"flops\":"); n = /"result":{[^}]*"row_kind":"(outputs|sequences)"/ ? 1 : 16
        if (/"result":{[^}]*"row_kind":"sequences"/) n = 16
        s += n * (v[2] + 0) } END { printf "%.0f\n", s }'
}
for name in llama-gqa mixtral olmoe qwen3-moe deepseek-v2 deepseek-v3 bert-pooler; do
    dir=$models/$name
    [ -d "$dir/hf" ] && dir=$dir/hf
    bench=$(counted "$dir")
    fold=$(folded "$dir")
    ok "$name: bench counts the program's $fold FLOPs: $bench" \
        awk -v a="$bench" -v b="$fold" 'BEGIN { exit !(b > 0 && a > 0.9999 * b && a < 1.0001 * b) }'
done

# what each pass leaves
run tp-run program --tp 2 "$bard"
cp out whole
run tp-run program --tp 2 --pass lifetimes "$bard"
status_is 0 "a program is printed after a pass"
ok "after the last one it is the whole" cmp -s out whole
run tp-run program --pp 2 --pass unused "$bard"
ok "before the boundary a stage has all instructions" test "$(grep -c '^total: instructions' out)" -eq 2 -a "$(grep '^total: instructions' out | cut -d, -f1 | sort -u | wc -l)" -eq 1
ok "and receives nothing" sh -c '! grep -q "receive %" out'
run tp-run program --pp 2 --pass boundary "$bard"
out_has "receive %" "after it, it does"
run tp-run program --train --pass weights "$bard"
cp out forward
run tp-run program --train --pass reverse "$bard"
cp out both
run tp-run program --train "$bard"
ok "the derivative comes with its pass" test "$(wc -l < forward)" -lt "$(wc -l < both)"
ok "and is whole then" cmp -s both out
run tp-run program "$bard"
grep '^total: ' out | cut -d, -f2- > costs
run tp-run program --pass fuse "$bard"
out_has "linears of the next 3" "what can be fused stands before its parts"
out_has "gated_linear of the next 4" "and so do gate and up"
ok "fusing changes no cost" test "$(grep '^total: ' out | cut -d, -f2-)" = "$(cat costs)"
run tp-run program --pass fuse --json "$bard"
ok "JSON says it, too" test "$(grep -c '"op":"rope_keep","parts":4}' out)" -eq 6
run tp-run program --compute bf16 --pass types "$bard"
out_has "bf16 replicated = attention(" "what products alone read is bf16 with --compute bf16"
ok "and residual streams are not" sh -c '! grep -q "bf16 replicated = add(" out'
run tp-run program --pass types "$bard"
ok "nothing is without it" test "$(grep '^total: ' out | cut -d, -f2-)" = "$(cat costs)"
# DeepSeek-AI 2024, "DeepSeek-V2", section 2.1.2: training has keys and values of each head, 12 + 6 columns and not 24 + 20
latent=$data/models/deepseek-v2
for tokens in 2 64; do
    tp-run program --train --tokens $tokens "$latent" | sed -n 's/.*= attention(.*FLOPs \([0-9]*\).*/\1/p' | sort -u > out
    out_is $((2 * 6 * (8 + 4 + 6) * tokens / 2)) "latent attention trains in its expanded form, $tokens tokens"
done
awk 'BEGIN { for (i = 0; i < 3; i++) { printf "{\"ids\":["; for (k = 0; k < 24; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 60
    print "]}" } }' > ids.jsonl
tp-run score --json --input ids.jsonl "$latent" | sed -n 's/.*"nll":\([0-9.]*\).*/\1/p' | awk '{ s += $1 } END { printf "%.9f", s / NR }' > absorbed
tp-run train -q --data ids.jsonl --seq 24 --pack none --global-batch 3 --steps 1 --threads 1 --save-every 0 --log expanded "$latent"
ok "its loss is that of the absorbed form, which scores" near "$(cat absorbed)" \
    "$(sed -n 's/.*"type":"step".*"loss":\([0-9.]*\).*/\1/p' expanded)" 1e-6
run tp-run program --pass nothing "$bard"
status_is 2 "a pass that is not there is a usage error"
err_has "--pass: no pass is called 'nothing'; there are adapters, unused, boundary, order, weights, reverse, sequence, recompute, split, types, fuse, lifetimes, chunks" "with those that are"

done_testing
