#!/bin/sh
# train-terms.t - tp-run train: terms of the loss beside the likelihood, and what moves without a gradient
. "$top_srcdir/tests/lib.sh"

mixtral=$data/models/mixtral
# the documents of oracle/train-balance.py, whose numbers, by PyTorch in float64, stand below
awk -v vocab=64 'BEGIN { for (i = 0; i < 21; i++) { printf "{\"ids\":["
        for (k = 0; k < 12; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % (vocab - 4)
        print "]}" } }' > ids.jsonl

docs=ids.jsonl
train() {
    tp-run train -q --pack none --order sequential --seq 16 --steps 3 --global-batch 8 --micro-batch 2 \
        --lr 1e-2 --lr-schedule constant --eps 0.1 --clip 0 --threads 1 --data "$docs" "$@"
}
# key NAME FILE - its values in the lines of steps
key() {
    sed -n "/\"type\":\"step\"/s/.*\"$1\":\\([^,]*\\).*/\\1/p" "$2" | tr '\n' ' '
}
# near WANTED GOT - as many numbers, within 1e-6 of their size
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { n = split(a, x); m = split(b, y); bad = n != m || !n
        for (i = 1; i <= n; i++) { d = x[i] - y[i]; s = x[i] < 0 ? -x[i] : x[i]
            if (!(d < 0 ? -d < s * 1e-6 : d < s * 1e-6)) bad = 1 }
        exit bad }'
}
# ---- the balance of experts ----

for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2 --deterministic"; do
    # shellcheck disable=SC2086 # options
    run train --balance-loss 0.7 $layout -o "balance$layout" "$mixtral"
    status_is 0 "with $layout a balance loss is a term of the loss"
    ok "aux_loss is transformers', over the rows of a micro-batch" \
        near "2.193707764148712 2.2843916416168213 2.184548854827881" "$(key aux_loss "balance$layout/log.jsonl")"
    ok "loss is the likelihood alone, of weights that follow both" \
        near "5.154659718066645 5.382679588989182 4.742190886590524" "$(key loss "balance$layout/log.jsonl")"
done
run train --balance-loss 0.7 --balance-sum --router-z-loss 0.05 --label-smoothing 0.1 -o all "$mixtral"
status_is 0 "the sum over micro-batches, the router's z-loss and label smoothing are further terms"
ok "aux_loss is a mean all the same" near "2.193707764148712 2.23693186044693 2.150780359903971" "$(key aux_loss all/log.jsonl)"
ok "loss is that of the smoothed targets" near "5.138132547849419 5.354640731495151 4.7873727599778135" "$(key loss all/log.jsonl)"

mkdir asks
cp "$mixtral"/* asks
sed 's/"output_router_logits": false/"output_router_logits": true/; s/"router_aux_loss_coef": [0-9.]*/"router_aux_loss_coef": 0.7/' \
    "$mixtral/config.json" > asks/config.json
run train --steps 1 -o asked asks
status_is 0 "a config asks for it"
ok "with its coefficient" grep -q '"balance_loss":0.7,' asked/run.json
ok "which is used" near "2.193707764148712" "$(key aux_loss asked/log.jsonl)"
run train --steps 1 --balance-loss 0 -o without asks
ok "unless the command line says otherwise" test -z "$(key aux_loss without/log.jsonl)"
run tp-run train -q --resume --steps 2 --micro-batch 4 -o asked
status_is 2 "a run that balances experts keeps its micro-batch"
err_is "tp-run: --micro-batch 4: the run in asked was begun with 2, over whose rows it balances experts
Try 'tp-run train --help' for more." "for a reason"
run tp-run train -n --data ids.jsonl --seq 16 --balance-loss 0.7 "$data/models/llama-gqa"
status_is 1 "a model without experts has no balance"
err_is "tp-run: family llama: this model has no router whose experts could be balanced" "which is told"

# experts see the same rows of two answers as of the texts that end one token later
echo '{"prompt":[3,9],"chosen":[4,8],"rejected":[5,7,6],"ref_chosen_logps":-10,"ref_rejected_logps":-12}' > pair.jsonl
printf '%s\n' '{"ids":[3,9,4,8,5]}' '{"ids":[3,9,5,7,6,5]}' > texts.jsonl
docs=texts.jsonl
run train --steps 1 --global-batch 2 --balance-loss 0.7 --router-z-loss 0.05 -o texts "$mixtral"
docs=pair.jsonl
run train --steps 1 --global-batch 1 --micro-batch 1 --loss dpo --balance-loss 0.7 --router-z-loss 0.05 -o pair "$mixtral"
docs=ids.jsonl
for term in aux_loss router_z_loss; do
    ok "pairs have $term, too" near "$(key $term texts/log.jsonl)" "$(key $term pair/log.jsonl)"
done

# ---- biases of a router ----

for layout in "--tp 2" "--pp 2" "--dp 2 --zero 1"; do
    # shellcheck disable=SC2086 # options
    run train --bias-update-speed 0.01 $layout -o "bias$layout" "$data/models/deepseek-v3"
    status_is 0 "with $layout the biases of a router move"
    ok "and what they choose is learned" near "4.955228118973356 4.781532209111792 4.990788517629448" \
        "$(key loss "bias$layout/log.jsonl")"
done
run train -o still "$data/models/deepseek-v3"
ok "they are no part of the norm" near "$(key grad_norm still/log.jsonl | cut -d' ' -f1)" \
    "$(key grad_norm "bias--pp 2/log.jsonl" | cut -d' ' -f1)"
head -n 2 ids.jsonl > two.jsonl
for batch in 2 8; do
    docs=two.jsonl
    run train --steps 1 --micro-batch 1 --global-batch $batch --bias-update-speed 0.01 -o two$batch "$data/models/deepseek-v3"
done
docs=ids.jsonl
ok "what fills up a batch chooses no expert" cmp two2/step-000001/rank-tp0-pp0.safetensors two8/step-000001/rank-tp0-pp0.safetensors
run tp-run train -n --data ids.jsonl --seq 16 --bias-update-speed 0.01 "$mixtral"
status_is 2 "a router without a bias has none to move"

# ---- an average of the weights, and a mixture of sources ----

head -n 5 ids.jsonl > a.jsonl
tail -n 16 ids.jsonl > b.jsonl
model=$data/models/llama-gqa
mix() {
    run tp-run train -q --data 0.75:a.jsonl --data 0.25:b.jsonl --steps 4 --ema 0.5 --log-samples --save-every 1 --pack none --seq 16 \
        --global-batch 8 --micro-batch 2 --lr 1e-2 --lr-schedule constant --threads 1 "$@" "$model"
}
mix -o whole
status_is 0 "sources are mixed, and an average of the weights is kept"
sed -n 's/.*"sources":\[\([^]]*\)\].*/\1/p' whole/log.jsonl | tr ',' '\n' | sed 's/.*\/\(.\)\.jsonl"/\1/' > order
ok "of 32 samples 24 are of the source with three quarters" test "$(grep -c a order) $(grep -c b order)" = "24 8"
ok "and of the first 6 the others have one or two" head -n 6 order | tr -d '\na' | grep -qx 'bb*'
ok "a checkpoint has an epoch and a cursor of each" \
    grep -q '"sources":\[{"epoch":4,"sample":4},{"epoch":0,"sample":8}\]' whole/step-000004/checkpoint.json
cp -r whole resumed
rm -r resumed/step-000003 resumed/step-000004
run tp-run train -q --resume -o resumed --threads 1
status_is 0 "a run that mixes goes on"
ok "with the bits that it would have had, and those of the average" \
    cmp whole/step-000004/rank-tp0-pp0.safetensors resumed/step-000004/rank-tp0-pp0.safetensors
mix --dp 2 --zero 1 --tp 2 -o other
status_is 0 "on another layout"
sed -n 's/.*"samples":/"samples":/p' whole/log.jsonl > whole.ids
sed -n 's/.*"samples":/"samples":/p' other/log.jsonl > other.ids
ok "the samples are the same" cmp whole.ids other.ids
run tp-run train -q --resume --steps 5 --data 0.5:a.jsonl --data 0.5:b.jsonl -o resumed
status_is 2 "a run keeps its proportions"
err_has "a.jsonl has the weight 0.5; the run was begun with 0.75" "which are told"
run tp-run train -n --data 0.5:a.jsonl --data b.jsonl "$mixtral"
status_is 2 "all sources have a weight, or none"
run tp-shard verify resumed
status_is 0 "all checkpoints of a run are verified"
out_has "intact: $(find resumed/step-* -type f ! -name checkpoint.json | wc -l) files" "with all of their files"
run tp-shard merge -q --average whole average
status_is 0 "the averages are merged in place of the weights"
run tp-shard merge -q whole plain
run tp-shard diff plain average
status_is 1 "which are others"
model=$mixtral # of bf16
mix --steps 1 --ema 0.999999 -o slow
run tp-shard merge -q --average --dtype bf16 slow first
run tp-shard diff "$mixtral" first
status_is 0 "a slow average is what the weights were"
run tp-run generate --average --ids 5,6 --max-new-tokens 8 whole
cp out given
run tp-run generate --ids 5,6 --max-new-tokens 8 average
ok "and generate takes them, too" cmp given out
run tp-shard merge --average "$mixtral" none
status_is 2 "a model without averages has none"
printf x | dd of=resumed/step-000002/rank-tp0-pp0.safetensors bs=1 seek=4000 conv=notrunc 2> /dev/null
run tp-shard verify resumed
status_is 1 "damage of an older checkpoint is found"

# ---- more tokens ----

gqa=$data/models/llama-gqa # of f32, with 112 tokens
head -n 2 ids.jsonl > s.jsonl
echo '{"ids":[5,6,113]}' >> s.jsonl
for layout in "" "--tp 2 --pp 2"; do
    # shellcheck disable=SC2086 # options
    run tp-run train -q --data s.jsonl --pack none --seq 16 --global-batch 3 --lr 0 --threads 1 --resize-vocab 114 $layout \
        -o "grown$layout" "$gqa"
    status_is 0 "a model gets two more tokens${layout:+, with $layout}"
    run tp-run logits -q --ids 5,6 -o logits.npy "grown$layout"
    tail -c $((2 * 114 * 4)) logits.npy | od -An -v -tf4 | tr -s ' ' '\n' | sed '/^$/d' > numbers
    ok "whose rows are the mean of the others" awk '{ k = (NR - 1) % 114; if (!k) sum = 0
        if (k < 112) sum += $1
        else { d = $1 - sum / 112; n++; if (d > 1e-5 || d < -1e-5) bad = 1 } }
        END { exit bad || n != 4 }' numbers
done
run tp-shard merge -q grown grown.merged
ok "a merged config has them" grep -q '"vocab_size": 114' grown.merged/config.json
run tp-run logits -q --ids 5,113 -o logits.npy grown.merged
status_is 0 "and the files"
run tp-run train -q --resume --steps 2 -o grown --threads 1
status_is 0 "the run goes on with them"
run tp-run train -n --data ids.jsonl --seq 16 --resize-vocab 111 "$gqa"
status_is 2 "tokens are not taken away"
err_has "has 112 tokens, more than 111" "which is told"
run tp-run train -n --data ids.jsonl --seq 16 --resize-vocab 120 grown.merged
status_is 0 "what was grown can grow again"
run tp-run train -q --data s.jsonl --pack none --seq 16 --global-batch 3 --lr 0 --resize-vocab 114 --resize-zero -o zeros "$gqa"
run tp-run logits -q --ids 5,113 -o logits.npy zeros
tail -c 8 logits.npy | od -An -tf4 > numbers
ok "or rows are zeros" grep -qx ' *-*0  *-*0' numbers
# a dry run is of the program that would run
echo '{"ids":[3,4,5,6]}' > few.jsonl
for term in 0 0.1; do
    tp-run train -n --data few.jsonl --seq 8 --global-batch 1 --steps 1 --balance-loss $term "$data/models/mixtral" | sed -n 's/.* optimizer, \(.*\) for each.*/\1/p'
done > sizes
ok "a dry run counts what a balance loss keeps" test "$(sort -u sizes | wc -l)" = 2

done_testing
