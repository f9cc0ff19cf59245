#!/bin/sh
# train-terms.t - tp-run train: terms of the loss beside the likelihood, and what moves without a gradient
. "$top_srcdir/tests/lib.sh"

mixtral=$data/models/mixtral
# the documents of oracle/train-balance.py, whose numbers, by PyTorch in float64, stand below
awk -v vocab=64 'BEGIN { for (i = 0; i < 21; i++) { printf "{\"ids\":["
        for (k = 0; k < 12; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % (vocab - 4)
        print "]}" } }' > ids.jsonl

train() {
    tp-run train -q --data ids.jsonl --pack none --order sequential --seq 16 --steps 3 --global-batch 8 --micro-batch 2 \
        --lr 1e-2 --lr-schedule constant --eps 0.1 --clip 0 --threads 1 "$@"
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

# ---- biases of a router ----

for layout in "--tp 2" "--pp 2" "--dp 2 --zero 1"; do
    # shellcheck disable=SC2086 # options
    run train --bias-update-speed 0.01 $layout -o "bias$layout" "$data/models/deepseek-v3"
    status_is 0 "with $layout the biases of a router move"
    ok "and what they choose is learned" near "4.955228118973356 4.781532209111792 4.990788517629448" \
        "$(key loss "bias$layout/log.jsonl")"
done
run tp-run train -n --data ids.jsonl --seq 16 --bias-update-speed 0.01 "$mixtral"
status_is 2 "a router without a bias has none to move"
done_testing
