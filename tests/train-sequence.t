#!/bin/sh
# train-sequence.t - tp-run train on ranks that share the tokens of a sequence, and on those that divide experts
. "$top_srcdir/tests/lib.sh"

model=$data/models/llama-groups # KV heads that do not divide

# ids N - N documents of ids, some shorter than a group of ranks
ids() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) { printf "{\"ids\":["
        m = 2 + i * 7 % 23
        for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 60
        print "]}" } }'
}
ids 24 > ids.jsonl
ids 9 | tail -n 3 > held.jsonl

# train OPTION... - a short run on the ids, one thread a rank
train() {
    tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --steps 4 --lr 1e-2 --threads 1 \
        --lr-schedule constant --dropout 0.1 --save-every 0 "$@"
}

# lines RUN - what its steps and evaluations are told by
lines() {
    sed -n 's/"tokens_per_second".*//
        s/,"eval_runtime":[^,]*//
        /"type":"\(step\|eval\)"/p' "$1" | tr '{},' '\n\n\n'
}

# same A B TOLERANCE - the logs differ at most by it, in parts
same() {
    lines "$1" > a.lines
    lines "$2" > b.lines
    test -s a.lines && paste -d: a.lines b.lines | awk -F: -v t="$3" '
        function abs(x) { return x < 0 ? -x : x }
        $1 != $3 || ($2 != $4 && !(abs($2 - $4) <= t * abs($2) && $2 + 0)) { print; bad = 1 }
        END { exit bad }'
}

train --eval-data held.jsonl --eval-every 2 --log one "$model"
for how in "--sp 2" "--sp 3 --dp 2 --pipeline interleaved" "--sp 2 --tp 2 --pp 2 --micro-batch 2" "--sp 2 --dp 2 --zero 3 --hsdp 1" \
    "--sp 2 --dp 2 --zero 2" \
    "--sp 3 --sp-mode ring" "--sp 4 --sp-mode ulysses=2 --zero 1" "--sp 2 --sp-mode ring --tp 2 --pp 2 --micro-batch 2 --pipeline zb-h1"; do
    rm -f other
    # shellcheck disable=SC2086
    train --eval-data held.jsonl --eval-every 2 --log other $how "$model"
    ok "$how: the log of one rank" same one other 2e-5
done

# between products, over tp
for how in "--tp 3" "--tp 2 --pp 2 --sp 2 --zero 1 --recompute products"; do
    rm -f other
    # shellcheck disable=SC2086
    train --eval-data held.jsonl --eval-every 2 --log other --sequence-parallel $how "$model"
    ok "--sequence-parallel $how: the log of one rank" same one other 2e-5
done
run tp-run program --train --sequence-parallel --tp 2 "$model"
ok "no sum of the residual stream is of all tokens" test "$(grep -c '= all-reduce.*\[tokens\].*over tp' out)" -gt 4 -a \
    "$(grep -c '\[tokens\][^=]* = all-reduce.*over tp' out)" = 0
run train --sequence-parallel "$model"
status_is 2 "--sequence-parallel needs tp"
err_has "--sequence-parallel: tokens are divided over the ranks of tp, which is 1" "which is said"
run train --sequence-parallel --tp 2 --deterministic "$model"
status_is 2 "and takes sums apart"

train --pack none --micro-batch 1 --log short "$model"
train --pack none --micro-batch 1 --log shorter --sp 4 "$model"
ok "texts with fewer tokens than ranks" same short shorter 2e-5
rm -f shorter
train --pack none --micro-batch 1 --log shorter --sp 4 --sp-mode ring "$model"
ok "in a ring, too" same short shorter 2e-5

# KTO's shift, which is over a batch, in evaluations, too: that of a step
awk 'BEGIN { for (i = 0; i < 12; i++) printf "{\"prompt\":[%d,%d],\"completion\":[%d,%d],\"KL_completion\":[%d],\"label\":%s," \
    "\"reference_logps\":%d,\"reference_KL_logps\":%d}\n", 3 + i, 40 - i, 5 + i * 3, 50 - i * 4, 20 + i, i % 3 ? "true" : "false",
    -5 - i, -12 - i % 5 }' > judged.jsonl
judge() {
    tp-run train -q --loss kto --data judged.jsonl --eval-data judged.jsonl --eval-every 2 --seq 24 --global-batch 4 --steps 3 --lr 1e-2 \
        --loss-beta 0.5 --dropout 0.1 --threads 1 --save-every 0 "$@" "$model"
}
judge --log shift
for how in "--sp 2" "--sp 3 --sp-mode ring --dp 2" "--dp 2 --micro-batch 2 --zero 3" "--sp 2 --pp 2"; do
    rm -f other
    # shellcheck disable=SC2086
    judge --log other $how
    ok "KTO, $how: the log of one rank" same shift other 2e-5
done

# the head of whole texts is read by the first rank of a group alone
classes() {
    tp-run train -q --data "$data/labelled/bert-classify.jsonl" --seq 24 --pack none --global-batch 4 --steps 3 --lr 1e-2 --dropout 0 \
        --threads 1 --save-every 0 "$@" "$data/models/bert-classify"
}
classes --log texts
for how in "--sp 2 --zero 2" "--sp 2 --dp 2 --zero 3"; do
    rm -f other
    # shellcheck disable=SC2086
    classes --log other $how
    ok "classes of texts, $how: the log of one rank" same texts other 2e-5
done

# ---- going on ----

train --steps 2 --save-every 2 -o run --sp 2 --dp 2 --zero 1 "$model"
train --resume --steps 3 -o run --tp 2 "$model"
run train --resume --steps 4 -o run --sp 3 --sp-mode ring "$model"
status_is 0 "a run goes on from any layout to any"
train --log whole "$model"
ok "as one that was not ended" same whole run/log.jsonl 2e-5

# ---- experts ----

# on the ranks of ep, as on those of dp, tokens differ
mixtral=$data/models/mixtral
mix() {
    train --micro-batch 1 --eval-data held.jsonl --eval-every 2 --balance-loss 0.02 --router-z-loss 0.001 "$@" "$mixtral"
}
rm -f one
mix --log one
for how in "--ep 2" "--ep 2 --dp 2 --zero 3" "--ep 2 --tp 2 --sp 2 --pipeline zb-v" "--ep 2 --pp 2 --sp 2 --sp-mode ring --zero 2 --pipeline zb-h2"; do
    rm -f other
    # shellcheck disable=SC2086
    mix --log other $how
    ok "experts, $how: the log of one rank" same one other 2e-5
done
v3=$data/models/deepseek-v3
train --micro-batch 1 --bias-update-speed 0.01 --log loads "$v3"
train --micro-batch 1 --bias-update-speed 0.01 --log others --ep 2 --dp 2 "$v3"
ok "biases that follow the loads of all experts" same loads others 2e-5
mix --steps 2 --save-every 1 -o mixed --ep 2 --dp 2 --zero 1
mix --resume --steps 3 -o mixed --tp 2
mix --resume --steps 4 -o mixed --ep 2 --sp 2
ok "a run goes on from any layout of experts to any" same one mixed/log.jsonl 2e-5
for how in "--tp 1" "--ep 2 --sp 2 --zero 1"; do
    rm -rf "lora.$how"
    # shellcheck disable=SC2086
    train --micro-batch 1 --lora 2:q_proj,o_proj,w1,w2 --steps 2 --save-every 2 -o "lora.$how" $how "$mixtral"
done
ok "the norm of an adapter's gradient counts it once" same "lora.--tp 1/log.jsonl" "lora.--ep 2 --sp 2 --zero 1/log.jsonl" 2e-5
run train --ep 2 --deterministic "$mixtral"
status_is 2 "sums over tokens depend on ep"
err_has "depend on ep" "which is said"

# ---- memory ----

while read -r name how; do
    # shellcheck disable=SC2086
    tp-run train --data ids.jsonl --seq 8 --global-batch 12 --micro-batch 1 --steps 1 --threads 1 --save-every 0 --json $how \
        "$data/models/$name" > out
    # shellcheck disable=SC2086
    mem-estimate train --framework tp-run --runtime 0 --seq 8 --micro-batch 1 --global-batch 12 $how --json "$data/models/$name" > estimate
    ok "mem-estimate foretells the bytes of $name $how" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
        "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
done << END
llama-gqa --mesh sp=2
llama-gqa --mesh sp=3,dp=2 --zero 3
llama-gqa --mesh sp=3,dp=2 --sp-mode ring --zero 2
llama-gqa --mesh sp=4,tp=2 --sp-mode ulysses=2
llama-gqa --mesh tp=3,dp=2 --sequence-parallel --zero 2
mixtral --mesh ep=3,sp=2 --zero 2
mixtral --mesh ep=2,dp=2,tp=2 --zero 1
END

for how in "--sp 2" "--sp 3 --sp-mode ring"; do
    # shellcheck disable=SC2086
    tp-run train --data ids.jsonl --seq 21 --global-batch 1 --steps 1 --threads 1 --save-every 0 --report-memory $how "$model" 2>&1 > /dev/null |
        sed -n 's/.*"activations":\([0-9]*\).*/\1/p' | awk '{ printf "%.2f KiB\n", $1 / 1024 }' | sort -u > kept
    # shellcheck disable=SC2086
    tp-run train -n --data ids.jsonl --seq 21 --global-batch 1 --steps 1 --threads 1 $how "$model" |
        sed -n 's/^stage.*, \(.*\) for each micro-batch.*/\1/p' > planned
    ok "a dry run counts the activations of $how" sh -c "test -s kept && cmp kept planned"
done
run mem-estimate train --sp 2 --sp-mode ring "$model"
status_is 2 "mem-estimate has tp-run's ways to share a sequence"
err_has "--sp-mode ring: is of --framework=tp-run" "which is said"

run train --sp 2 --deterministic "$model"
status_is 2 "sums over tokens depend on sp"
err_has "depend on sp" "which is said"

done_testing
