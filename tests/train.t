#!/bin/sh
# train.t - tp-run train: steps, checkpoints, going on, ending
. "$top_srcdir/tests/lib.sh"

model=$data/models/llama-groups # bf16, KV heads that do not divide

# ids N - N documents of ids
ids() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) { printf "{\"ids\":["
        m = 9 + i * 7 % 23
        for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 95
        print "]}" } }'
}
ids 40 > ids.jsonl
ids 9 | tail -n 6 > held.jsonl

# train OPTION... - a short run on the ids, one thread a rank
train() {
    tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --steps 8 --lr 1e-2 --threads 1 "$@"
}

# losses RUN - of its steps, one a line
losses() {
    sed -n 's/.*"type":"step".*"loss":\([^,]*\),.*/\1/p' "$1/log.jsonl"
}

# same_losses A B TOLERANCE - the runs have them
same_losses() {
    losses "$1" > a.losses
    losses "$2" > b.losses
    paste a.losses b.losses | awk -v t="$3" 'function abs(x) { return x < 0 ? -x : x }
        NF != 2 || abs($1 - $2) > t * $1 { print NR, $0; bad = 1 } END { exit bad || !NR }'
}

# same_files A B - the directories have the same rank files
same_files() {
    for f in "$1"/rank-*; do
        cmp "$f" "$2/${f##*/}" || return 1
    done
}

# wait_for_step RUN N - until the run is there
wait_for_step() {
    tries=0
    while ! grep -qs "\"step\":$2," "$1/log.jsonl" && [ $tries -lt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# ---- a run and its checkpoint ----

run train --eval-data held.jsonl --eval-every 4 --save-every 4 -o one "$model"
status_is 0 "a model is trained"
err_empty "it says nothing under -q"
train --steps 30 --save-every 0 --log learnt "$model"
ok "the loss falls" awk -F '"loss":' '/"step",/ { n++; if (n == 1) first = $2 + 0; last = $2 + 0 }
    END { exit !(n == 30 && last < first - 1) }' learnt
ok "checkpoints are made as --save-every says" test "$(echo one/step-*)" = \
    "one/step-000004 one/step-000008"
ok "verify finds the checkpoint intact" tp-shard verify one/step-000008
run tp-shard show --json one/step-000008
out_has '"role":"exp_avg_sq"' "show names the roles of a training's state"
out_has '"role":"master"' "among them f32 masters of weights in bf16"
ok "merge makes a model of it" tp-shard merge -q one/step-000008 merged
ok "of weights alone, in their types" sh -c "[ \$(tp-shard show merged | grep -c BF16) = 21 ]"
ok "no moments among them" sh -c "! tp-shard show merged | grep exp_avg"
ok "reshard keeps the state" sh -c "tp-shard reshard -q --tp 2 one/step-000008 two &&
    tp-shard verify two && tp-shard diff one/step-000008 two && grep -q '\"training\":{\"step\":8' two/checkpoint.json"
ok "evaluations and the end are in the log" sh -c \
    "[ \"\$(grep -c '\"type\":\"eval\"' one/log.jsonl)\" = 2 ] && tail -n 1 one/log.jsonl | grep -q '\"finished\":true'"
sed -n 2p held.jsonl > document.jsonl
sed 's/.*\[//; s/\].*//' document.jsonl > document.ids
tp-run train -q --data document.jsonl --eval-data document.jsonl --pack none --seq 24 --steps 1 --lr 0 --save-every 0 \
    --json merged > out
tp-run score --json --ids-file document.ids merged > score
ok "an evaluation has the loss of tp-run score" near "$(json score nll)" \
    "$(sed -n 's/.*"type":"eval".*"eval_loss":\([^,]*\),.*/\1/p' out)" 1e-5

n=$(tr -d '0-9\n' < document.ids | wc -c) # the last is no input
tp-run program --train --tokens "$n" --json merged > program.json
grep '"type":"step"' out > step.json
ok "a step's FLOPs are those of tp-run program --train" near \
    "$(json step.json flops_per_second) / $(json step.json tokens_per_second) / $(sed -n 's/.*"type":"program".*"flops":\([^,}]*\).*/\1/p' program.json)" 1 1e-9
ok "and their share of the peak is told" grep -q '"peak_share":0\.[0-9]*' step.json

for layout in "--tp 1" "--tp 2" "--pp 2" "--tp 2 --pp 2 --dp 2" "--pp 2 --recompute full" "--tp 2 --recompute products" \
    "--recompute 1" "--recompute selective"; do
    # shellcheck disable=SC2086 # words
    tp-run train --data ids.jsonl --pack none --seq 24 --global-batch 8 --steps 1 --threads 1 --save-every 0 --json \
        $layout "$data/models/llama-gqa" > out
    # shellcheck disable=SC2086 # words
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --micro-batch 1 --global-batch 8 $layout --schedule 1f1b --json \
        "$data/models/llama-gqa" > estimate
    ok "mem-estimate --framework tp-run foretells the bytes of $layout" test "$(json out memory)" = \
        "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
done

# what neither is told is the same: samples of a step, of a micro-batch, and their tokens
awk 'BEGIN { for (i = 0; i < 8; i++) { printf "{\"ids\":["
    for (k = 0; k < 1030; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 95
    print "]}" } }' > long.jsonl
for layout in "" "--pp 2" "--dp 8" "--tp 2 --dp 2 --pp 2"; do
    for name in llama-gqa wide; do
        [ $name = llama-gqa ] || { cp -r "$data/models/llama-gqa" wide && sed -i \
            's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 4096/' wide/config.json; }
        [ $name = llama-gqa ] || [ -z "$layout" ] || continue
        [ -d $name ] || cp -r "$data/models/$name" $name
        # shellcheck disable=SC2086 # words
        tp-run train -q --data long.jsonl --pack none --steps 1 --threads 1 --save-every 0 --json $layout $name > out
        # shellcheck disable=SC2086 # words
        mem-estimate train --framework tp-run --runtime 0 $layout --json $name > estimate
        ok "mem-estimate has the defaults of tp-run train, ${layout:-one rank} of $name" test "$(json out memory)" = \
            "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
    done
done

# ---- other optimizers ----

# descend OPTION... - a run on all ids at each step, so that the losses of its steps compare
descend() {
    tp-run train -q --data ids.jsonl --seq 24 --global-batch 34 --steps 8 --lr 1 --weight-decay 0.01 --threads 1 "$@" "$model"
}

for optimizer in sgd momentum lion; do
    if [ $optimizer = momentum ]; then
        set -- --momentum 0.5
    elif [ $optimizer = lion ]; then
        set -- --lr 0.02
    else
        set --
    fi
    descend --optimizer $optimizer "$@" -o $optimizer
    losses $optimizer > $optimizer.losses
    ok "$optimizer learns: the loss falls with each step" awk 'NR == 1 { first = $1 } NR > 1 && $1 >= last { bad = 1 } { last = $1 }
        END { exit bad || NR != 8 || last > first - 1 }' $optimizer.losses
    grep -m 1 '"type":"step"' $optimizer/log.jsonl > step.json
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --micro-batch 1 --global-batch 34 --optimizer $optimizer --json \
        "$model" > estimate
    ok "mem-estimate --framework tp-run foretells the bytes of $optimizer" test "$(json step.json memory)" = "$(json estimate peak)"
done
# ---- products in bf16 ----

descend --lr 0.003 --save-every 0 -o wide
descend --lr 0.003 --compute bf16 --stop-after 0.000001 -o narrow
run tp-run train -q --resume --threads 1 -o narrow
status_is 0 "a training with products in bf16 goes on"
losses wide > wide.losses
losses narrow > narrow.losses
paste wide.losses narrow.losses > pairs
ok "its losses are those of f32, but for the roundings" awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (d) some = 1; if (d > 0.01 * $1) bad = 1 }
    END { exit bad || !some || NR != 8 }' pairs
descend --lr 0.003 --compute bf16 -o narrow.whole
ok "and of a run that was not stopped, to the bit" same_files narrow.whole/step-000008 narrow/step-000008
grep -m 1 '"type":"step"' narrow/log.jsonl > step.json
mem-estimate train --framework tp-run --runtime 0 --seq 24 --micro-batch 1 --global-batch 34 --compute bf16 --json "$model" > estimate
ok "mem-estimate --framework tp-run foretells its bytes" test "$(json step.json memory)" = "$(json estimate peak)"
for layout in "--tp 2" "--pp 2 --dp 2 --zero 2"; do
    # shellcheck disable=SC2086 # words
    descend --lr 0.003 --compute bf16 --save-every 0 $layout -o narrow.other
    losses narrow.other > other.losses
    paste narrow.losses other.losses > pairs
    ok "$layout has the same losses within a thousandth" awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (d > 0.001 * $1) bad = 1 }
        END { exit bad || NR != 8 }' pairs
    rm -r narrow.other
done
for type in bf16 f16; do
    for zero in 2 3; do
        descend --lr 0.003 --compute $type --dp 2 --zero $zero --micro-batch 17 -o narrow.$zero
    done
    ok "$type: weights gathered as products read them give the bits of those that are kept" same_files narrow.2/step-000008 narrow.3/step-000008
    grep -m 1 '"type":"step"' narrow.3/log.jsonl > step.json
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --micro-batch 17 --global-batch 34 --dp 2 --zero 3 --compute $type --json "$model" > estimate
    ok "$type: mem-estimate foretells the bytes of --zero 3" test "$(json step.json memory)" = "$(json estimate peak)"
    rm -r narrow.2 narrow.3
done
# with recomputation, the logits of 1024 tokens or more are made and learnt in chunks of rows, the last of which has the rest
awk 'BEGIN { for (i = 0; i < 120; i++) { printf "{\"ids\":[%d", 3 + i % 90
    for (k = 1; k < 24; k++) printf ",%d", 3 + (i * 31 + k * k * 7 + k * 11) % 95
    print "]}" } }' > many.jsonl
for how in "--threads 1" "--threads 2 --compute bf16" "--compute f16 --dp 2 --zero 3" "--deterministic" "--pp 2"; do
    for recompute in none full; do
        # shellcheck disable=SC2086 # words
        tp-run train -q --data many.jsonl --seq 24 --global-batch 120 --micro-batch 60 --steps 2 --lr 1e-2 --threads 1 $how \
            --recompute $recompute -o chunks.$recompute "$model"
    done
    ok "$how: the head and the loss in chunks of rows have the same bits" same_files chunks.none/step-000002 chunks.full/step-000002
    rm -r chunks.none chunks.full
done

# in f16 the loss is scaled: a text of two tokens, one of which counts, has gradients above its range at first
descend --lr 0.003 --compute f16 --stop-after 0.000001 -o half
run tp-run train -q --resume --threads 1 -o half
status_is 0 "a training with products in f16 goes on"
losses half > half.losses
paste wide.losses half.losses > pairs
ok "its losses are nearer to those of f32 than those of bf16" awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (d) some = 1; if (d > 0.001 * $1) bad = 1 }
    END { exit bad || !some || NR != 8 }' pairs
echo '{"ids":[5,7]}' > two.jsonl
tp-run train -q --data two.jsonl --pack none --global-batch 1 --steps 30 --lr 1e-2 --threads 1 -o sure "$model"
echo '{"ids":[5,9]}' > two.jsonl
for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2 --zero 3 --global-batch 2"; do
    # shellcheck disable=SC2086 # words
    tp-run train --data two.jsonl --pack none --global-batch 1 --steps 4 --lr 1e-2 --threads 1 --compute f16 --stop-after 0.000001 $layout \
        -o scaled --weights-from sure/step-000030 > out 2> /dev/null
    # shellcheck disable=SC2086
    tp-run train -q --resume --threads 1 ${layout% --global-batch 2} -o scaled 2> /dev/null
    sed -n 's/.*"type":"step".*"learning_rate":\([^,]*\),.*"loss_scale":\([0-9]*\)\(.*\)}/\1 \2\3/p' scaled/log.jsonl > scales
    ok "$layout: a step whose gradients overflow is skipped with its rate, and the scale halved" test "$(tr '\n' ' ' < scales)" = \
        '0.01 65536,"skipped":true 0.01 32768 0.0075 32768 0.005 32768 '
    ok "$layout: which is said" grep -q 'skipped: overflow of f16' out
    rm -r scaled
done
run tp-run train -q --resume --compute f32 --steps 9 -o narrow
status_is 2 "a run keeps its type of products"
err_has '--compute "f32": the run in narrow/run.json was begun with "bf16"' "with both"

run descend --optimizer sgd --momentum 0.5 -o refused
status_is 2 "SGD without a sum has no momentum"
err_has "--momentum: --optimizer sgd has none; with one it is --optimizer momentum" "and the name of what has is told"
ok "sgd keeps nothing for a weight" sh -c "tp-shard show sgd/step-000008 > shown && ! grep -e momentum_buffer -e exp_avg shown"
ok "momentum keeps the sum of its gradients" sh -c "tp-shard show momentum/step-000008 > shown && grep momentum_buffer shown &&
    ! grep exp_avg shown"
descend --optimizer momentum --momentum 0 --save-every 0 -o none.kept
ok "momentum that keeps nothing of the sum is sgd" same_losses sgd none.kept 0
paste sgd.losses momentum.losses > pairs
ok "and what keeps a half of it learns faster, from the second step" awk '
    NR < 3 ? $1 != $2 : $1 <= $2 { bad = 1 } END { exit bad || NR != 8 }' pairs
descend --optimizer momentum --momentum 0.5 --stop-after 0.000001 -o halves
ok "a run by momentum that is stopped has a checkpoint" test "$(echo halves/step-*)" = halves/step-000001
run tp-run train -q --resume -o halves
status_is 0 "it goes on"
ok "and has the bits of one that was not stopped" same_files momentum/step-000008 halves/step-000008
cp -r one older
sed 's/"optimizer":"adamw","momentum":0.9,//' one/run.json > older/run.json
ok "an older run said nothing of its optimizer" sh -c '! grep -q optimizer older/run.json && grep -q weight_decay older/run.json'
run tp-run train -q --resume --optimizer sgd -o older
status_is 2 "it takes no other"
err_has "tp-run: --optimizer \"sgd\": the run in older/run.json was begun with \"adamw\"" "with the reason"
run tp-run train -q --resume --steps 9 --threads 1 -o older
status_is 0 "and goes on"
ok "by adamw" grep -q '"optimizer":"adamw"' older/run.json
run tp-run train -q --resume --steps 9 --optimizer sgd -o momentum
status_is 2 "a run keeps its optimizer"
err_has '--optimizer "sgd": the run in momentum/run.json was begun with "momentum"' "with both names"
run tp-run train -q --resume --steps 9 --momentum 0.75 -o momentum
status_is 2 "and its factor"
err_has "--momentum 0.75: the run in momentum/run.json was begun with 0.5" "with both"

# ---- the same bits ----

train --save-every 0 --json "$model" | sed -n 's/,"tokens_per_second.*//p' > first
train --save-every 0 --json "$model" | sed -n 's/,"tokens_per_second.*//p' > second
ok "a run made again has the same bits" cmp first second
train --save-every 0 --json --threads 2 "$model" | sed -n 's/,"tokens_per_second.*//p' > second
ok "and with two threads" cmp first second
train --tp 2 --pp 2 --pipeline gpipe -o gpipe "$model"
train --tp 2 --pp 2 --pipeline 1f1b -o 1f1b "$model"
ok "gpipe and 1f1b have the same bits" same_files gpipe/step-000008 1f1b/step-000008
pp-partition schedule --pp 2 --micro-batches 4 --schedule gpipe --csv > table.csv
train --tp 2 --pp 2 --pipeline table.csv -o table "$model"
ok "and pp-partition's file of it" same_files gpipe/step-000008 table/step-000008
for dp in 1 2 4; do
    train --deterministic --dp "$dp" -o "dp$dp" "$model"
done
ok "--deterministic: dp 1 and 2 have the same bits" same_files dp1/step-000008 dp2/step-000008
ok "and 4" same_files dp1/step-000008 dp4/step-000008

for layout in "--tp 1" "--tp 2" "--tp 4" "--tp 2 --pp 2 --dp 2"; do
    # shellcheck disable=SC2086 # words
    train --deterministic --clip 0.5 --steps 4 $layout -o "bits$layout" "$data/models/llama-gqa"
    tp-shard merge -q "bits$layout/step-000004" "merged$layout"
done
ok "and tp 1 and 2, where ranks have halves of what sums are over" \
    cmp "merged--tp 1/model.safetensors" "merged--tp 2/model.safetensors"
ok "and 4" cmp "merged--tp 1/model.safetensors" "merged--tp 4/model.safetensors"
ok "and tp 2 by pp 2 by dp 2" cmp "merged--tp 1/model.safetensors" "merged--tp 2 --pp 2 --dp 2/model.safetensors"
sed 's/,"tokens_per_second.*//' "bits--tp 1/log.jsonl" | grep grad_norm > first
sed 's/,"tokens_per_second.*//' "bits--tp 2 --pp 2 --dp 2/log.jsonl" | grep grad_norm > second
ok "so have losses and norms" cmp first second
run train --deterministic --tp 2 -o none "$data/models/qwen3"
status_is 1 "--deterministic is refused where a gradient's sum over the ranks has no tree"
err_has "q_norm.weight is a sum over ranks" "and the weight is named"
run train --deterministic --tp 2 -o none "$data/models/gpt2-hub"
err_has "before a fused product" "so are fused weights"
train --pp 1 -o pp1 "$model"
train --pp 2 -o pp2 "$model"
sed 's/,"tokens_per_second.*//' pp1/log.jsonl | grep grad_norm > first
sed 's/,"tokens_per_second.*//' pp2/log.jsonl | grep grad_norm > second
ok "stages have the norms of one rank to the bit" cmp first second
for pp in 1 2; do
    train --pp $pp --steps 3 --save-every 0 --log tied$pp "$data/models/smollm"
    sed -n 's/.*"grad_norm":\([^,]*\),.*/\1/p' tied$pp > norms$pp
done
ok "also where both stages have the tied embedding" sh -c 'paste norms1 norms2 | awk "
    { d = \$1 - \$2; if (d < 0) d = -d; if (d > 1e-5 * \$1) exit bad = 1 } END { exit bad || NR != 3 }"'

# A weight that sharded values and a replicated one read: one rank adds the gradient of the latter.
mkdir shared
echo '{"model_type":"own","hidden_size":24,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "head_dim":8,"intermediate_size":40,"vocab_size":100}' > shared/config.json
cat > shared.json << 'EOF'
{ "family": "own", "extends": "llama", "match": { "model_type": ["own"] },
  "tensors": { "norm": ["model.layers.{layer}.norm.weight", "head_dim"],
               "small": ["model.layers.{layer}.small.weight", "head_dim", "hidden"],
               "back": ["model.layers.{layer}.back.weight", "hidden", "head_dim"] },
  "forward": { "layer": { "q": "rope(rmsnorm(linear(h, wq) + bq, norm, eps), rot)",
    "y": "x + linear(a, wo) + bo + linear(rmsnorm(linear(h, small), norm, eps), back)" } } }
EOF
for tp in 1 3; do
    train --init --seed 3 --steps 3 --save-every 0 --family shared.json --tp $tp -o shared$tp shared
done
ok "a weight that is read by sharded and replicated values has one gradient" same_losses shared1 shared3 1e-6
cat > fused.json << 'EOF'
{ "family": "fused", "extends": "llama", "match": { "model_type": ["own"] },
  "tensors": { "fused": ["model.layers.{layer}.fused.weight", "q:heads*head_dim + r:head_dim", "hidden"],
               "back": ["model.layers.{layer}.back.weight", "hidden", "head_dim"], "wq": null, "bq": null },
  "forward": { "layer": ["h = rmsnorm(x, attn_norm, eps)", "p = linear(h, fused)", "q = rope(p.q, rot)",
    "k = keep(rope(linear(h, wk) + bk, rot))", "v = keep(linear(h, wv) + bv)", "a = attention(q, k, v, causal)",
    "y = x + linear(a, wo) + bo + linear(p.r, back)", "g = rmsnorm(y, ffn_norm, eps)",
    "f = activation(linear(g, gate) + gate_b, act) * (linear(g, up) + up_b)", "x = y + linear(f, down) + down_b"] } }
EOF
run train --init --steps 1 --save-every 0 --family fused.json shared
status_is 0 "a tensor with a segment that all ranks have is trained on one rank"
run train --init --steps 1 --save-every 0 --family fused.json --tp 3 shared
status_is 1 "and refused on several"
err_is "tp-run: family fused: a replicated segment of a sharded value cannot be trained over tp" "with the reason"

tr 7 8 < ids.jsonl | sed 's/9[0-9]/4/g' > small.jsonl
for layout in "--tp 1" "--tp 2 --pp 2"; do
    # shellcheck disable=SC2086 # words
    tp-run train -q --data small.jsonl --seq 24 --steps 3 --threads 1 $layout -o "drop$layout" "$data/models/gpt2-untied"
done
run tp-run train -q --data small.jsonl --seq 24 --steps 1 --threads 1 --deterministic --save-every 0 "$data/models/gpt2-untied"
status_is 0 "but on one rank they are trained so"
ok "dropout is the same on every layout" same_losses "drop--tp 1" "drop--tp 2 --pp 2" 2e-5
tp-run train -q --data small.jsonl --seq 24 --steps 3 --threads 1 --dropout 0 -o drop0 "$data/models/gpt2-untied"
head -n 1 small.jsonl > document.jsonl
for dropout in 0 0.1; do
    tp-run train -q --data document.jsonl --pack none --seq 24 --steps 3 --lr 0 --threads 1 --dropout $dropout --save-every 0 \
        --log masks$dropout "$data/models/gpt2-untied"
    sed -n 's/.*"type":"step".*"loss":\([^,]*\),.*/\1/p' masks$dropout | sort -u > masks$dropout.losses
done
ok "each step drops others" test "$(wc -l < masks0.1.losses)" -eq 3 -a "$(wc -l < masks0.losses)" -eq 1
ok "and --dropout 0 turns it off" sh -c "! tp-shard diff -q 'drop--tp 1/step-000003' drop0/step-000003"

# ---- rounding ----

# A bias of keys adds the same number to all scores of a query, which softmax takes away again: its gradient is 0, and
# what rounding leaves of it differs on each layout.  AdamW makes steps of --lr of that; an --eps above it does not.
for eps in 1e-8 1e-5; do
    for layout in "--tp 1" "--tp 2 --pp 2"; do
        # shellcheck disable=SC2086 # words
        tp-run train -q --data small.jsonl --seq 24 --steps 8 --lr 1e-2 --global-batch 4 --threads 1 --dropout 0 --eps $eps \
            $layout -o "eps$eps$layout" "$data/models/gpt2-hub"
        tp-shard merge -q "eps$eps$layout/step-000008" "eps$eps$layout.merged"
    done
done
names=$(tp-shard show "eps1e-8--tp 1.merged" | sed -n 's/^\(h\.[^ ]*\|w[tp]e[^ ]*\|ln_f[^ ]*\) .*/\1/p')
# shellcheck disable=SC2046,SC2086 # words
ok "layouts differ by rounding alone, but in the biases of keys" "$top_builddir/tests/compare-tensors" \
    "eps1e-8--tp 1.merged/model.safetensors" "eps1e-8--tp 2 --pp 2.merged/model.safetensors" 2e-3 \
    $(echo "$names" | grep -v c_attn.bias)
# shellcheck disable=SC2086 # words
ok "and in these with --eps 1e-8 alone" "$top_builddir/tests/compare-tensors" "eps1e-5--tp 1.merged/model.safetensors" \
    "eps1e-5--tp 2 --pp 2.merged/model.safetensors" 1e-4 $names

# ---- from nothing ----

mkdir config
cp "$model/config.json" config
train --init -o begun config
train --init --tp 2 --pp 2 -o begun2 config
ok "--init begins with the same weights on every layout" same_losses begun begun2 2e-5
losses begun > a.losses
ok "whose loss is that of a guess" near 4.8752 "$(head -n 1 a.losses)" 0.05
tp-shard merge -q begun2/step-000008 made
tp-shard show made | sed 's/  .*//' | sort > got
tp-shard show "$model" | sed 's/  .*//' | sort > want
ok "and what is made has the tensors of the model" cmp got want
run tp-run train -q --resume --steps 9 --threads 1 -o begun2
status_is 0 "and goes on"

# ---- going on ----

train --tp 2 --dp 2 -o whole "$model"
train --tp 2 --dp 2 --save-every 3 --stop-after 0.000001 -o parts "$model"
ok "--stop-after ends with a checkpoint" test -d parts/step-000001
tail -n 1 parts/log.jsonl > last
ok "and says that the run is not finished" grep -q '"finished":false' last
mkdir parts/step-000007.partial
run tp-run train -q --resume --stop-after 0.000001 -o parts
status_is 0 "a run goes on"
ok "by another step" test -d parts/step-000002
ok "what was half-written is removed" test ! -e parts/step-000007.partial
run tp-run train -q --resume -o parts
ok "stopped and resumed, it has the bits of one that was not" same_files whole/step-000008 parts/step-000008
ok "its log has each step once" same_losses whole parts 0
train --tp 2 --save-every 3 --log-samples -o move "$model"
rm -rf move/step-000008 move/step-000006
run tp-run train -q --resume --tp 1 --pp 2 --dp 2 --threads 1 --log-samples -o move
status_is 0 "a run goes on another mesh"
rm -rf move/step-000008
run tp-run train -q --resume --tp 3 --dp 1 --pp 1 --micro-batch 2 --threads 1 --log-samples -o move
status_is 0 "and another"
ok "with the losses of the uninterrupted one" same_losses whole move 2e-5
sed -n 's/.*"samples":\[\(.*\)\].*/\1/p' move/log.jsonl | tr , '\n' | sort > seen
train --save-every 0 --log-samples --json "$model" |
    sed -n 's/.*"samples":\[\(.*\)\].*/\1/p' | tr , '\n' | sort > want
ok "no sample is repeated or missed" cmp seen want
run tp-run train -q --resume --steps 10 --threads 1 -o one
status_is 0 "a run can be given more steps"
ok "and takes them" test -d one/step-000010
cp -r one bad
rm -rf bad/step-000010 bad/step-000004
dd if=/dev/zero of=bad/step-000008/rank-tp0-pp0.safetensors bs=1 seek=60000 count=8 conv=notrunc 2> /dev/null
run tp-run train -q --resume -o bad
status_is 3 "a damaged checkpoint is not gone on from"

# damaged SCRIPT CAUSE NAME - a run whose settings or log sed has changed
damaged() {
    rm -rf bad
    mkdir bad
    sed "$1" one/run.json > bad/run.json
    run tp-run train -q --resume -o bad
    status_is 3 "$3 is bad input"
    err_is "tp-run: bad/run.json:$2" "with its place and cause"
}
damaged 's/"format":"[a-z-]*"/"format":"other"/' "1:11: not shardutils-run" "a run.json of another kind"
damaged 's/"version":1/"version":2/' "1:38: of a version other than 1" "a run.json of another version"
damaged 's/^{[^,]*,/{/' "1:1: not shardutils-run" "a run.json that does not say what it is"
damaged 's/^"model":.*/"model":7,/' "1:1: no model" "a run without a model"
damaged 's/^"data":\[/"data":[{},/' "6:9: expected a file" "data that is no file"
at=$(awk '/^"options"/ { print NR }' one/run.json)
column=$(awk '/^"options"/ { print index($0, "\"micro_batch\":") + 14 }' one/run.json)
damaged 's/"micro_batch":1/"micro_batch":0/' "$at:$column: a bad value of micro-batch" "a micro-batch of 0"
damaged 's/"micro_batch":1/"micro_batch":4294967297/' "$at:$column: a bad value of micro-batch" "one beyond the numbers"
column=$(awk '/^"options"/ { print index($0, "\"beta2\":") + 8 }' one/run.json)
damaged 's/"beta2":[0-9.]*/"beta2":1/' "$at:$column: a bad value of beta2" "a beta2 of 1"
damaged 's/"micro_batch":1,//' "$at:11: no option micro-batch" "a run without one"
run train --micro-batch 2147483647 --dp 2 -o bad2 "$model"
status_is 2 "micro-batches beyond the batch are refused"
err_has "no multiple of 4294967294, which is --micro-batch 2147483647 times dp 2" "with their product"

# what a crash of the machine leaves in a log
cp -r one torn
{
    head -n 1 one/log.jsonl
    printf 'x\000y\n\n'
    sed 1d one/log.jsonl
} > torn/log.jsonl
run tp-run train -q --resume --steps 11 -o torn
status_is 0 "a log with zero bytes is gone on from"
losses torn | head -n 10 > kept
losses one > want
ok "and only the line that has them is lost" cmp want kept

run tp-run train -q --resume --lr 1e-3 -o one
status_is 2 "another learning rate is refused"
err_has "--lr 0.001: the run in one/run.json was begun with 0.01" "with both"
run tp-run train -q --resume --seed 5 -o one
status_is 2 "and another seed"
cp held.jsonl other.jsonl
run tp-run train -q --resume --data other.jsonl -o one
status_is 2 "and other data"

# what a run is resumed with
cp -r "$model" own
train --save-every 0 --eval-data held.jsonl -o named own
cp own/model.safetensors weights
printf x | dd of=own/model.safetensors bs=1 seek=4000 conv=notrunc 2> dd.err
run tp-run train -q --resume --steps 9 -o named
status_is 2 "a model with other weights is refused"
err_has "$PWD/own/model.safetensors: $(wc -c < weights) bytes with the CRC-32 " "by name"
err_has "; the run was begun with $(wc -c < weights) bytes with " "with both"
cp weights own/model.safetensors
cp own/config.json config.kept
sed 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps":0.25/' config.kept > own/config.json
run tp-run train -q --resume --steps 9 -o named
status_is 2 "and one with another configuration"
err_has "$PWD/own/config.json: " "by name"
cp config.kept own/config.json
run tp-run train -q --resume --steps 9 --eval-data other.jsonl --eval-data held.jsonl -o named
status_is 2 "other data to evaluate are refused"
err_has "--eval-data: 2 files; the run was begun with 1" "by their number"
run tp-run train -q --resume --steps 9 --eval-data ids.jsonl -o named
status_is 2 "and by what is in them"
err_has "tp-run: ids.jsonl: $(wc -c < ids.jsonl) bytes with the CRC-32 " "by name"
cp held.jsonl held.kept
head -n 1 ids.jsonl >> held.jsonl
run tp-run train -q --resume --steps 9 -o named
status_is 2 "also where they were changed since"
cp held.kept held.jsonl
sed '/"model_files"/,/"data"/{ /"data"/!d; }' named/run.json > old.json
ok "an older run said nothing of the model" sh -c '! grep -q model_files old.json && grep -q eval_data old.json'
cp -r named old
cp old.json old/run.json
printf x | dd of=own/model.safetensors bs=1 seek=4000 conv=notrunc 2> dd.err
run tp-run train -q --resume --steps 9 --save-every 1 -o old
status_is 0 "it goes on"
cp weights own/model.safetensors
run tp-run train -q --resume --steps 9 --save-every 1 -o named
status_is 0 "and so does a run whose files are as they were"
printf x | dd of=own/model.safetensors bs=1 seek=4000 conv=notrunc 2> dd.err
run tp-run train -q --resume --steps 10 -o named own
status_is 2 "a changed model that is named is refused where there are checkpoints"
run tp-run train -q --resume --steps 10 -o named
status_is 0 "and not read where it is not named"
run tp-run train -q --resume --steps 11 -o named own
err_has "own/model.safetensors: " "it is the first model that is remembered"

run train -o one "$model"
status_is 2 "a run that is there is not begun again"
err_has "tp-run: one: has a run: --resume goes on with it, -f removes it" "and why is said"
run train -f --keep 1 --save-every 2 -o one "$model"
ok "-f begins it again, and --keep 1 keeps the last" test "$(echo one/step-*)" = one/step-000008
run train -f --keep best --eval-data held.jsonl --save-every 2 -o one "$model"
best=$(sed -n 's/.*"eval","step":\([0-9]*\),"eval_loss":\([^,]*\),.*/\2 \1/p' one/log.jsonl | sort -g |
    awk 'NR == 1 { print $2 }')
ok "--keep best keeps the best" test -d "one/step-00000$best"
head -n 1 ids.jsonl > learnt.jsonl
echo '{"ids":[1,2,1,1,2,2,0,1,2,0,0,1]}' > other.jsonl # worse with each step
tp-run train -q -f --data learnt.jsonl --pack none --seq 24 --global-batch 4 --steps 8 --lr 1e-2 --threads 1 --keep best \
    --eval-data other.jsonl --save-every 2 -o one "$model"
ok "also where it is not the last" test "$(echo one/step-*)" = "one/step-000002 one/step-000008"
run tp-run train -q --data ids.jsonl --seq 24 --steps 2 --threads 1 -o again one/step-000008
status_is 0 "a run begins with the weights of another"
run tp-run train -q --data ids.jsonl --seq 24 --steps 2 --threads 1 -o from --weights-from one/step-000008
status_is 0 "also by --weights-from"
ok "which is the same" same_files again/step-000002 from/step-000002
run train -o none --weights-from "$model"
status_is 3 "--weights-from takes a step of a run"
err_has "has no state of a training" "and says so"
run train -o none --weights-from one/step-000008 "$model"
status_is 2 "and no model besides"
run train -f -o one one/step-000008
status_is 2 "-f does not remove the model that a run is to begin with"
ok "which is still there" test -d one/step-000008

# ---- a start that fails ----

cp -r one whole.one
run train -o begun.bad --deterministic --global-batch 6 "$model"
status_is 2 "a start fails while its ranks open"
ok "and leaves no directory" test ! -e begun.bad
mkdir begun.bad
run train -o begun.bad --deterministic --global-batch 6 "$model"
ok "or leaves it empty" sh -c '[ -z "$(ls begun.bad)" ]'
run train -f -o whole.one --deterministic --global-batch 6 "$model"
status_is 2 "one that was to replace a run fails"
ok "and leaves the run" sh -c "cmp one/run.json whole.one/run.json && cmp one/log.jsonl whole.one/log.jsonl && test -d whole.one/step-000008"

# ---- refusals ----

run tp-run train --data ids.jsonl "$model"
status_is 2 "without -o it is not clear where checkpoints go"
run train --dp 3 -o none "$model"
err_has "--global-batch 4: no multiple of 3, which is --micro-batch 1 times dp 3" \
    "a global batch that does not divide is refused"
run train -o none "$data/encoders/deberta"
err_has "'relate' has no derivative" "an encoder whose attention has relative positions is refused"
run train -o none "$data/models/lfm2"
err_has "'causal_convolve' has no derivative" "and so is a model with convolutions"
run train -o none "$data/models/mamba2"
err_has "family mamba2: 'scan' has no derivative" "and one with scans"
run train -o none --pipeline "$model/config.json" "$model"
status_is 3 "a pipeline's file that is none is bad input"
run train --eval-every 2 -o none "$model"
err_has "give --eval-data" "evaluations need data"
ok "none of these left anything" test ! -e none
run train -n -o none "$model"
out_has "steps:     8" "-n prints what would be done"
ok "and does nothing" test ! -e none

# ---- ending ----

run train --lr 1e30 --warmup 3 --clip 0 --save-every 1 -o nan "$model"
status_is 1 "a loss that is no number ends the run with 1"
err_has "is not a number; the last good checkpoint is nan/step-" "and the last good checkpoint is named"
err_lines 1 "in one line"
run train --lr 1e-2 --skip-spikes 100 -o spike "$model"
status_is 0 "--skip-spikes goes on"

tp-run train -q --data ids.jsonl --seq 24 --threads 1 --steps 100000 --tp 2 -o long "$model" 2> err &
pid=$!
wait_for_step long 3
run tp-run train -q --resume --steps 100001 -o long
status_is 75 "a run is not taken up while it is under way"
kill -TERM $pid
status=0
wait $pid || status=$?
status_is 143 "SIGTERM ends a run after the step, with its status"
ok "with a whole checkpoint" sh -c "tp-shard verify long/step-*"
ok "nothing half-written is left" sh -c "! ls long | grep partial"
tp-run train -q --data ids.jsonl --seq 24 --threads 1 --steps 100000 --tp 2 --save-every 1 -o dead "$model" 2> err &
pid=$!
wait_for_step dead 3
read -r kids < "/proc/$pid/task/$pid/children"
kill -KILL "${kids%% *}"
status=0
wait $pid || status=$?
status_is 4 "a rank that dies ends the run with 4"
ok "in one line" grep -q 'rank . was killed by signal 9 (SIGKILL)' err
run tp-run train -q --resume --steps 9 -o dead
status_is 0 "which goes on from its last checkpoint"

# another trainer between the look at the directory and its lock
shim=$top_builddir/tests/fail-io.so
if LD_PRELOAD=$shim tp-run --version > version.out 2> version.err && [ ! -s version.err ]; then
    # meanwhile OTHER COMMAND... - OTHER runs just before COMMAND locks the directory
    meanwhile() {
        other=$1
        shift
        run env LD_PRELOAD="$shim" FAIL_CALL=lock FAIL_AT=1 FAIL_RUN="$other" "$@"
    }
    train --stop-after 0.000001 -o race "$model"
    meanwhile "tp-run train -q --resume --stop-after 0.000001 -o race && cp -r race race.other" tp-run train -q --resume -o race
    status_is 75 "a run that another trainer has taken further meanwhile is left alone"
    err_is "tp-run: race: another training has changed it since this one began to read it" "which is said"
    ok "nothing in it is changed" diff -r race.other race
    run tp-run train -q --resume -o race
    ok "begun again, it has the bits of one that nobody disturbed" same_files pp1/step-000008 race/step-000008
    ok "and each step once" same_losses pp1 race 0
    first="tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --steps 3 --threads 1 -o begun.race $model"
    meanwhile "$first && cp -r begun.race begun.other" tp-run train -q --data held.jsonl --steps 2 -o begun.race "$model"
    status_is 75 "so is one that another has begun"
    ok "of which nothing is replaced" diff -r begun.other begun.race
    meanwhile "tp-run train -q --resume --steps 4 -o begun.race && rm -rf begun.other && cp -r begun.race begun.other" \
        tp-run train -q -f --data held.jsonl --steps 2 -o begun.race "$model"
    status_is 75 "also where it was to be removed"
    ok "as it was" diff -r begun.other begun.race
else
    skip "a run that another trainer has taken further meanwhile is left alone" "nothing can be preloaded"
fi

# oneDNN's products have the stack pointer in memory from malloc, where a handler must not lay its frame
awk 'BEGIN { printf "{\"ids\":["; for (i = 0; i < 2000; i++) printf "%s%d", i ? "," : "", 3 + i * i * 7 % 1000; print "]}" }' > many.jsonl
for i in 1 2; do
    tp-run train -q --data many.jsonl --seq 128 --global-batch 1 --threads 1 --steps 100000 --save-every 1 --keep 1 \
        -f -o heard "$bard" 2> err &
    pid=$!
    wait_for_step heard 2
    n=0
    while [ $n -lt 80 ] && kill -TERM $pid 2> kill.err; do
        sleep 0.002
        n=$((n + 1))
    done
    status=0
    wait $pid || status=$?
    status_is 143 "signals in the midst of products harm nothing ($i)"
done

mkdir small
if mount -t tmpfs -o size=600k tmpfs small 2> mount.err; then
    trap 'umount "$scratch/small"; rm -rf "$scratch"' EXIT
    run train --save-every 2 -o small/run "$model"
    status_is 4 "a full disk ends the run with 4"
    err_has "No space left on device" "which is said"
    err_lines 1 "in one line"
    ok "the checkpoint before is whole" tp-shard verify small/run/step-000002
    ok "nothing half-written is left" sh -c "! ls small/run | grep partial"
    umount small
    trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
else
    skip "a full disk ends the run with 4" "cannot mount"
fi

# ---- a picture ----

if tp-run --version | grep -q '+cairo'; then
    run tp-run plot -o runs.svg one whole learnt
    status_is 0 "runs are drawn"
    ok "as a picture" grep -q '<svg' runs.svg
    run tp-run plot -o runs.svg ids.jsonl
    status_is 3 "what is no run's log is bad input"
else
    skip "runs are drawn" "built without cairo"
fi

# ---- a sweep ----

cat > sweep.yaml << 'EOF'
parameters:
  lr: {values: [1e-3, 1e-2]}
EOF
run hpo-sweep run -q --sampler grid --storage sweep.journal sweep.yaml -- \
    tp-run train -q --lr '{lr}' --data "$PWD/ids.jsonl" --eval-data "$PWD/held.jsonl" --seq 24 --steps 3 --eval-every 1 \
    --threads 1 "$model"
status_is 0 "hpo-sweep drives it"
hpo-sweep show --storage sweep.journal --json > out
ok "and has the loss of each evaluation" awk '/"COMPLETE"/ { n++; if ($0 !~ /"values": \[[3-6]\.[0-9]*\]/) bad = 1 }
    END { exit bad || n != 2 }' out
cat > prune.yaml << 'EOF'
parameters:
  lr: {values: [1e-2, 1e-3, 1e-6]}
EOF
run hpo-sweep run -q --sampler grid --pruner median:startup=2 --storage prune.journal prune.yaml -- \
    tp-run train -q --lr '{lr}' --data "$PWD/ids.jsonl" --eval-data "$PWD/ids.jsonl" --seq 24 --steps 60 --eval-every 4 \
    --dp 2 --threads 1 "$model"
hpo-sweep show --storage prune.journal --json > out
ok "a pruned trial ends before its time" sh -c "grep -q PRUNED out && ! grep -q finished.:true prune.trials/000002/log.jsonl"
ok "with a whole checkpoint" tp-shard verify -q prune.trials/000002
done_testing
