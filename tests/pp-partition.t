#!/bin/sh
# pp-partition.t - stages planned, cut and put together
. "${top_srcdir:?}/tests/lib.sh"

# gpt LAYERS - a GPT of so many layers, as gpt.json
gpt() {
    printf '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":8,"n_head":2,"n_layer":%d,' "$1" > gpt.json
    printf '"n_positions":16,"vocab_size":40}\n' >> gpt.json
}

# counts OPTION... - the stages' layers, commas between
counts() {
    pp-partition plan --json "$@" | sed -n 's/.*"layer_count":\([0-9]*\).*/\1/p' | tr '\n' ',' | sed 's/,$//'
}

# dealing by number: ColossalAI's distribute_layers, DeepSpeed's uniform
while read -r layers pp where want; do
    gpt "$layers"
    ok "$layers layers over $pp stages are $want, the rest $where" \
        test "$(counts --pp "$pp" --balance layers --remainder "$where" gpt.json)" = "$want"
done << 'END'
10 4 middle 2,3,3,2
11 4 middle 2,3,3,3
13 4 middle 3,3,4,3
7 4 middle 1,2,2,2
22 4 middle 5,6,6,5
30 8 middle 3,4,4,4,4,4,4,3
10 4 first 3,3,2,2
10 4 last 2,2,3,3
END

gpt 12
printf '100\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n4\n' > costs
ok "a heavy embedding leaves its stage one layer" test "$(counts --pp 4 --balance costs gpt.json)" = 1,5,5,1
ok "an embedding may stand alone" test "$(counts --pp 4 --balance costs --allow-empty gpt.json)" = 0,5,5,2
ok "chunks are stages of their own" test "$(counts --pp 2 --model-chunks 2 --balance layers gpt.json)" = 3,3,3,3
ok "Megatron's notation is read" \
    test "$(counts --stage-layout 'Et*3|(tt|)*3,t*3,L' gpt.json)" = 3,2,2,2,3
ok "a stage of it may have the embedding alone" \
    test "$(counts --stage-layout 'E|t*6|t*6|L' --allow-empty gpt.json)" = 0,6,6,0
ok "stages may be given" test "$(counts --stages 5,4,3 gpt.json)" = 5,4,3
run pp-partition plan --stages 5,4,4 gpt.json
status_is 1 "stages that are not all layers are an honest no"
run pp-partition plan --stages 6,0,6 gpt.json
status_is 1 "so is an empty stage that was not allowed"
run pp-partition plan --pp 13 gpt.json
status_is 1 "so are more stages than layers"
for bad in 'Et*|tL' 'tEt' 'Et*12Lt' 'E(tt|t' 'Etmt' 'Et*0'; do
    run pp-partition plan --stage-layout "$bad" gpt.json
    status_is 2 "the layout '$bad' is a usage error"
    err_has "--stage-layout: column" "that names the column"
done
head -n 5 costs > few
run pp-partition plan --pp 4 --balance few gpt.json
status_is 3 "a file of too few costs is bad input"
run pp-partition plan gpt.json
status_is 2 "stages must be asked for"

# what stages store: a tied embedding on both ends
total=$(mem-estimate infer --json gpt.json | sed 's/.*"params":\([0-9]*\).*/\1/')
pp-partition plan --pp 3 --json gpt.json > out
got=$(sed -n 's/.*"params":\([0-9]*\).*/\1/p' out | awk '{ n += $1 } END { print n }')
ok "a tied embedding is counted on each stage that has it" test "$got" = $((total + 40 * 8))
out_has '"shared":["transformer.wte.weight"]' "and told"
ok "all else once" test "$(grep -c '"shared":\[\]' out)" = 1

# FLOPs of a token: 24 h^2 + 4 h s / 2 a layer, 2 V h for the head
flops=$(sed -n 's/.*"flops":\([0-9]*\).*/\1/p' out | awk '{ n += $1 } END { print n }')
ok "FLOPs are those of the formula" test "$flops" = $((12 * (24 * 64 + 4 * 8 * 16 / 2) + 2 * 40 * 8))

# and with a window of 4 of 16 tokens: 2 * 4 - 4 * 4 / 16 keys are seen twice
printf '{"model_type":"mistral","architectures":["MistralForCausalLM"],"hidden_size":8,"num_attention_heads":2,' > window.json
printf '"num_key_value_heads":2,"num_hidden_layers":3,"intermediate_size":16,"vocab_size":40,"rms_norm_eps":1e-5,' >> window.json
printf '"rope_theta":10000,"max_position_embeddings":16,"sliding_window":4}\n' >> window.json
pp-partition plan --pp 1 --json window.json > out
out_has "\"flops\":$((3 * (8 * 64 + 6 * 8 * 16 + 2 * 8 * 7) + 2 * 40 * 8))," "a window shortens attention"

# memory: what mem-estimate says of training under 1f1b, where the first stage holds most micro-batches
peaks() { mem-estimate train --weights bf16 --runtime 0 --fragmentation 0 --json "$@" | grep -o '"total":[0-9]*' | cut -d: -f2 | sort -n | tail -n 1; }
run pp-partition plan --pp 1 --balance memory --json "$bard"
out_has "\"balance\":\"memory\",\"max\":$(peaks "$bard")," "memory is what mem-estimate says"
run pp-partition plan --pp 3 --balance memory --json "$bard"
out_has "\"balance\":\"memory\",\"max\":$(peaks --pp 3 --stages "$(counts --pp 3 --balance memory "$bard")" "$bard")," "of several stages, too"
ok "no other stages have less" sh -c '
    for stages in 1,1,4 1,2,3 1,3,2 1,4,1 2,1,3 2,2,2 2,3,1 3,1,2 3,2,1 4,1,1; do
        mem-estimate train --pp 3 --stages $stages --weights bf16 --runtime 0 --fragmentation 0 --json "$1" | grep -o "\"total\":[0-9]*" | cut -d: -f2 | sort -n | tail -n 1
    done | sort -n | head -n 1 | grep -qx "$(pp-partition plan --pp 3 --balance memory --json "$1" | sed -n "s/.*\"max\":\([0-9]*\).*/\1/p")"' sh "$bard"
ok "mem-estimate balances them so itself" test "$(peaks --pp 3 --balance memory "$bard")" = "$(sed -n 's/.*"max":\([0-9]*\).*/\1/p' out)"
run mem-estimate train --pp 3 --stages 1,2 "$bard"
status_is 2 "stages of which there are too few are refused"
# without options both cut alike, as tp-shard does
for pp in 2 3 4 5; do
    ok "$pp stages are those of mem-estimate" test "$(peaks --pp $pp "$bard")" = "$(peaks --pp $pp --stages "$(counts --pp $pp "$bard")" "$bard")"
done
gpt 12
sed 's/"vocab_size":40/"vocab_size":1000/' gpt.json > wide.json
ok "a large vocabulary leaves the last stage few layers" test "$(counts --pp 3 --balance memory wide.json)" = 4,7,1
run pp-partition plan --stages 4,4,4 --balance flops --json gpt.json
most=$(sed -n 's/.*"flops":\([0-9]*\).*/\1/p' out | sort -n | tail -n 1)
out_has "\"max\":$most," "the summary counts what --balance says"

# times from FLOPs
ideal() {
    pp-partition schedule --json --micro-batches 4 "$@" | sed 's/.*"ideal":\([^,]*\),.*/\1/'
}
run pp-partition plan --pp 3 --balance flops --json gpt.json
want=$(sed -n 's/.*"imbalance":\([0-9.]*\).*/\1/p' out)
ok "the busiest stage works as long as the plan is uneven" \
    awk -v a="$(ideal --pp 3 --plan gpt.json)" -v b="$want" 'BEGIN { exit !(a > 12 * b - 1e-6 && a < 12 * b + 1e-6) }'
run pp-partition schedule --pp 3 --plan gpt.json --forward 2
status_is 2 "times are given once"
run pp-partition schedule --pp 3 --plan none.json
status_is 3 "a model that is not there is told"
run pp-partition schedule --pp 3 --micro-batches 6 --plan gpt.json --compare
ok "all schedules are compared with them, of as many chunks as there are layers for" test "$(wc -l < out)" = 15

# cutting
for model in "$bard" "$data/models/smollm" "$data/models/gpt2-hub"; do
    name=${model##*/}
    rm -rf a b tp tppp pptp whole tpback
    tp-shard split -q --tp 2 "$model" tp
    run pp-partition split --pp 2 tp tppp
    status_is 0 "$name: a checkpoint is cut into stages"
    pp-partition split -q --pp 2 "$model" b && tp-shard reshard -q --tp 2 b pptp
    ok "$name: tp then pp is pp then tp" diff -r tppp pptp
    ok "$name: and intact" tp-shard verify tppp
    pp-partition merge -q tppp tpback
    ok "$name: merging gives the tensor ranks again" diff -r tp tpback
    pp-partition merge -q b whole
    ok "$name: or the original" diff -r -x 'expected*' -x README "$model" whole
done
run pp-partition split --stages 1,3,2 "$bard" uneven
status_is 0 "stages may be uneven"
out=$(sed -n 's/^"stages":\(.*\),$/\1/p' uneven/checkpoint.json)
ok "the manifest has them" test "$out" = "[1,3,2]"
ok "and they are intact" tp-shard verify uneven
tp-shard show uneven/rank-tp0-pp1.safetensors > out
ok "the middle one has its three layers" test "$(grep -c q_proj out)" = 3
tp-shard reshard -q --tp 2 uneven uneven.tp2
ok "recutting tp keeps the stages" grep -q '"stages":\[1,3,2\]' uneven.tp2/checkpoint.json
tp-shard merge -q uneven.tp2 whole.uneven
ok "and gives the original in the end" cmp "$bard/model.safetensors" whole.uneven/model.safetensors
tp-run score --mesh tp=2,pp=1 "$heldout" uneven > out
out_has "nll $heldout_nll" "it runs on any layout"
run pp-partition plan --stages 1,3,2 --balance flops --json "$bard"
want=$(sed -n 's/.*"imbalance":\([0-9.]*\).*/\1/p' out)
ok "a checkpoint's own stages are simulated" \
    awk -v a="$(ideal --pp 3 --plan uneven)" -v b="$want" 'BEGIN { exit !(a > 12 * b - 1e-6 && a < 12 * b + 1e-6) }'
pp-partition split -q --stages 2,2,2 "$bard" even.given
run tp-shard diff even.given uneven
status_is 0 "whose weights are the same"
pp-partition split -q --stages 0,4,0,2,0 --allow-empty "$bard" empty
ok "stages without layers are intact" tp-shard verify empty
tp-shard show empty/rank-tp0-pp0.safetensors > out
ok "the first has the embedding alone" test "$(grep -c model.layers out)" = 0
pp-partition split -q --pp 3 "$bard" three
pp-partition split -q --pp 3 empty again
ok "stages are cut anew as if from the original" cmp three/rank-tp0-pp1.safetensors again/rank-tp0-pp1.safetensors
pp-partition merge -q empty whole.empty
ok "and merged to it" cmp "$bard/model.safetensors" whole.empty/model.safetensors
sed 's/"stages":\[1,3,2\]/"stages":[1,3,3]/' uneven/checkpoint.json > changed
cp changed uneven/checkpoint.json
run tp-shard merge uneven never
status_is 3 "a manifest that was changed is refused"
# Costs of one's own: results are in their units, from a pipe as well
printf '5\n17.5\n17.5\n9\n5\n0\n3\n9\n' > own-costs
run pp-partition plan --pp 3 --balance own-costs --json "$bard"
ok "the largest stage and the mean are in the file's units" grep -q '"max":26,"mean":22,' out
mkfifo pipe
cat own-costs > pipe &
run pp-partition plan --pp 3 --balance pipe --json "$bard"
wait
ok "which may be a pipe" grep -q '"max":26,"mean":22,' out
printf '0\n0\n0\n0\n0\n0\n0\n0\n' > nothing
run pp-partition plan --pp 3 --balance nothing "$bard"
status_is 3 "costs of nothing are refused"
err_has "nothing: all costs are 0" "and named"
echo '{"model_type":"llama"}' > empty.json
run pp-partition plan --pp 2 empty.json
status_is 3 "a config without keys is refused"
for name in hidden_size num_hidden_layers num_attention_heads intermediate_size vocab_size; do
    err_has "$name" "and $name is among what it lacks"
done
for times in "--forward 1e308" "--forward 0" "--bandwidth 0" "--forward inf"; do
    # shellcheck disable=SC2086 # words are wanted
    run pp-partition schedule --pp 4 $times
    status_is 2 "no pipeline has $times"
done
run pp-partition schedule --pp 4 --micro-batches 1000000000000
err_has "'1000000000000' is more than 2147483647" "a number that is too large is told so"
done_testing
