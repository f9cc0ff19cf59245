#!/bin/sh
# optimizers.t - tp-run train with optimizers of whole tensors: their state in checkpoints, on other layouts
. "$top_srcdir/tests/lib.sh"


awk 'BEGIN { for (i = 0; i < 40; i++) { printf "{\"ids\":["
    m = 9 + i * 7 % 23
    for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 59
    print "]}" } }' > ids.jsonl

# train OPTION... - four steps, with the state after the second and at the end
train() {
    tp-run train -q --data ids.jsonl --seq 24 --pack none --global-batch 4 --steps 4 --save-every 2 --lr 3e-3 --weight-decay 0.1 \
        --threads 1 "$@"
}

# same_files A B - the directories have the same rank files
same_files() {
    for f in "$1"/rank-*; do
        cmp "$f" "$2/${f##*/}" || return 1
    done
}

# near_losses A B TOLERANCE - the runs have them
near_losses() {
    for run in "$1" "$2"; do
        sed -n 's/.*"type":"step".*"loss":\([^,]*\),.*/\1/p' "$run/log.jsonl" > "$run.losses"
    done
    paste "$1.losses" "$2.losses" | awk -v t="$3" 'function abs(x) { return x < 0 ? -x : x }
        NF != 2 || abs($1 - $2) > t * $1 { print NR, $0; bad = 1 } END { exit bad || NR != 4 }'
}

# goes_on FROM OPTION... - a copy of run FROM, from its second step on
goes_on() {
    rm -rf moved
    cp -r "$1" moved
    rm -r moved/step-000004
    shift
    tp-run train -q --resume --threads 1 "$@" -o moved
}

for optimizer in muon adafactor adam8bit lion; do
    tolerance=2e-5
    model=$data/models/llama-gqa
    if [ $optimizer = adam8bit ]; then
        tolerance=1e-3 # tp divides blocks
        model=$data/models/stories260K/hf # with matrices of 4096 numbers
    fi
    set -- --optimizer $optimizer
    [ $optimizer != muon ] || set -- "$@" --adamw-lr 1e-3 --adjust-lr match-rms-adamw
    [ $optimizer != adafactor ] || set -- "$@" --scale-parameter --lr 0.1
    train "$@" -o $optimizer "$model"
    ok "$optimizer learns, and verify finds its checkpoint intact" tp-shard verify -q $optimizer/step-000004
    goes_on $optimizer
    ok "$optimizer goes on to the bits of a run that was not stopped" same_files $optimizer/step-000004 moved/step-000004
    ok "its state is resharded and back" sh -c "tp-shard reshard -q --tp 3 $optimizer/step-000004 cut &&
        tp-shard verify -q cut && tp-shard reshard -q --tp 1 cut back && tp-shard diff $optimizer/step-000004 back &&
        rm -r back"
    cmp $optimizer/step-000004/rank-tp0-pp0.safetensors cut/rank-tp0-pp0.safetensors > /dev/null 2>&1
    status=$?
    ok "in other files" test $status != 0
    rm -r cut
    ok "a merge has the weights alone" sh -c "tp-shard merge -q $optimizer/step-000004 merged &&
        ! tp-shard show merged | grep -e exp_avg -e momentum && rm -r merged"

    train "$@" --tp 3 --dp 2 --zero 1 -o across "$model"
    ok "$optimizer has the losses of one rank on tp 3 by dp 2" near_losses $optimizer across $tolerance
    layout="--pp 2 --dp 2 --zero 3"
    [ $optimizer != muon ] || layout="--tp 2 --zero 2 --dp 2"
    # shellcheck disable=SC2086 # words
    goes_on across $layout
    ok "it goes on from there with $layout" near_losses $optimizer moved $tolerance
    for zero in 0 1 3; do
        away=
        [ $zero != 1 ] || away="--offload optimizer"
        # shellcheck disable=SC2086 # words
        train "$@" --steps 2 --dp 4 --zero $zero $away -o zero$zero "$model"
        [ $zero = 0 ] || ok "ZeRO $zero $away has the bits of ZeRO 0, with $optimizer" \
            same_files zero0/step-000002 zero$zero/step-000002
    done
    rm -r zero? across moved

    train "$@" --lora 4 -o lora "$model"
    goes_on lora --tp 2 --dp 2 --zero 1
    ok "an adapter goes on with $optimizer on tp 2" near_losses lora moved $tolerance
    rm -r lora moved

    for layout in "--tp 3 --dp 2 --zero 1" "--pp 2 --dp 2 --zero 3"; do
        # shellcheck disable=SC2086 # words
        train "$@" --steps 1 --save-every 0 $layout --report-memory "$model" 2> report
        sed -n 's/.*"total":\([0-9]*\).*/\1/p' report | sort -u > kept
        # shellcheck disable=SC2086 # words
        mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 1 $layout --schedule 1f1b \
            --optimizer $optimizer --threads 1 --json "$model" | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -u > foretold
        ok "mem-estimate foretells each rank's bytes of $optimizer with $layout" sh -c "test -s kept && cmp kept foretold"
    done
    rm -r $optimizer
done

# ---- --master none: matrices in bf16 alone, rounded at random ----

# (tests/oracle/check-rounding.py holds an update against float64 and the same random bits)
model=$data/models/llama-gqa
set -- --compute bf16 --master none
train "$@" --deterministic --ema 0.5 -o one "$model"
train "$@" --deterministic --ema 0.5 --dp 4 --zero 3 -o two "$model"
ok "weights without masters have the same bits on ZeRO 3" same_files one/step-000004 two/step-000004
train "$@" --ema 0.5 --tp 2 --dp 2 --zero 1 -o cut "$model"
goes_on cut --pp 2
ok "and the same losses on tp 2, and from there on pp 2" near_losses one moved 1e-5
train --compute bf16 -o wide "$model"
ok "and nearly those of updates of f32" near_losses one wide 5e-3
rm -r one two cut moved wide
for layout in "" "--tp 3 --dp 2 --zero 3" "--pp 2 --dp 2 --zero 1" "--deterministic" "--deterministic --dp 2 --zero 1" "--deterministic --dp 2 --zero 3"; do
    without=$*
    [ "${layout#*deter}" = "$layout" ] || without=
    # shellcheck disable=SC2086 # words
    train $without --steps 1 --save-every 0 $layout --report-memory "$model" 2> report
    sed -n 's/.*"total":\([0-9]*\).*/\1/p' report | sort -u > kept
    # shellcheck disable=SC2086 # words
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 1 $layout --schedule 1f1b \
        $without --threads 1 --json "$model" | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -u > foretold
    ok "mem-estimate foretells each rank's bytes with $without $layout" sh -c "test -s kept && cmp kept foretold"
done
train "$@" -o one "$data/models/llama-groups"
train --compute bf16 --tp 2 -o two "$data/models/llama-groups"
ok "a model of bf16 begins with its weights as they are" near_losses one two 0.02
ok "to the bit" test "$(sed -n 1p one.losses)" = "$(sed -n 1p two.losses)"
ok "a checkpoint of bf16 has no master of what has none" sh -c \
    "! grep -q 'q_proj.weight.master' one/step-000004/checkpoint.json && grep -q 'norm.weight.master' one/step-000004/checkpoint.json"
rm -r one two
for wrong in "--compute f32" "--compute f16" "--compute bf16 --optimizer muon" "--compute bf16 --lora 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run train --data ids.jsonl --seq 24 --steps 1 --master none $wrong -o one "$model"
    status_is 2 "--master none is refused with $wrong"
done
run tp-run train --data ids.jsonl --seq 24 --steps 1 --save-every 0 --compute bf16 --master none --pp 2 "$data/models/gemma2"
status_is 1 "--master none is refused where one stage reads a table that another multiplies by"
run mem-estimate train --framework tp-run --deterministic --seq 24 --micro-batch 1 --micro-batches 3 "$model"
status_is 2 "mem-estimate refuses --deterministic of three micro-batches"

# ---- experts, in tensors of their own and stacked ----

for name in mixtral gpt-oss; do
    for optimizer in muon adafactor; do
        train --optimizer $optimizer -o one "$data/models/$name"
        train --optimizer $optimizer --tp 2 --dp 2 --zero 1 -o two "$data/models/$name"
        ok "$optimizer of $name's experts has the same losses on tp 2" near_losses one two 2e-5
        goes_on two
        ok "and goes on from there on one rank" near_losses one moved 2e-5
        rm -r one two moved
    done
done

# the first update of a vector is the sign of its gradient times the threshold: a bias of each expert is a vector
tp-run train -q --data ids.jsonl --seq 24 --global-batch 8 --steps 1 --lr 0.1 --lr-schedule constant --clip 1e9 --optimizer adafactor \
    --clip-threshold 0.25 --threads 1 -o one "$data/models/gpt-oss"
tp-shard merge -q one/step-000001 merged
tp-shard diff "$data/models/gpt-oss" merged > differs
ok "adafactor clips the update of each expert's bias by itself" test "$(grep -c "gate_up_proj_bias: .* by at most 0.025" differs)" = 2
rm -r one merged

# what the CPU has of weights in memory of a device
for backend in "" "--threads 1"; do
    # shellcheck disable=SC2086 # words
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --optimizer adafactor --offload optimizer $backend --json "$data/models/llama-gqa" |
        sed -n 's/.*"host":\([0-9]*\).*/\1/p'
done > host
rows=$(json "$data/models/llama-gqa/config.json" vocab_size) cols=$(json "$data/models/llama-gqa/config.json" hidden_size)
ok "it has the largest weight and its gradient on the host, as a GPU keeps them" test $((8 * rows * cols)) = "$(paste -s host | awk '{ print $1 - $2 }')"

# ---- a fork ----

train --steps 1 -o ada --optimizer adafactor "$data/models/llama-gqa"
run tp-run train -q --fork ada --relative-step --steps 2 --threads 1 -o relative
ok "a fork with --relative-step has its usual rate" grep -q '"lr":1,' relative/run.json
train --steps 1 -o adamw "$data/models/llama-gqa"
run tp-run train -q --fork adamw --optimizer lion --steps 2 --threads 1 -o lion
ok "one with another optimizer has what is usual with that" grep -q '"beta2":0.99,' lion/run.json
run tp-run train -q --fork lion --optimizer lion --lr 1e-5 --beta2 0.95 --steps 3 --threads 1 -o lion2
run tp-run train -q --fork lion2 --optimizer lion --steps 4 --threads 1 -o lion3
ok "one with the same has that run's" grep -q '"beta2":0.95,' lion3/run.json
rm -r ada relative adamw lion lion2 lion3

# ---- the same bits on all layouts ----

model=$data/models/llama-gqa

for tp in 1 2; do
    train --optimizer muon --deterministic --tp $tp -o tp$tp "$model"
    tp-shard merge -q tp$tp/step-000004 merged$tp
done
ok "muon, which gathers matrices, has the same bits on tp 2 with --deterministic" \
    cmp merged1/model.safetensors merged2/model.safetensors

# ---- what does not go together ----

tp-run train --data ids.jsonl --seq 24 --global-batch 4 --steps 1 --save-every 0 --threads 1 --optimizer adam8bit --tp 2 \
    "$data/models/stories260K/hf" > out 2> err
err_has "parts of blocks of 8 bits of" "a layout that divides blocks is told of"

run train --optimizer adamw --adamw-lr 1e-3 -o never "$model"
status_is 2 "AdamW has one rate"
err_has "--adamw-lr: --optimizer adamw has none" "which is said"
run train --optimizer muon --lr 0 --adamw-lr 1e-2 -o never "$model"
status_is 2 "the rate of AdamW follows the other"
err_has "--adamw-lr 0.01: follows the schedule of --lr, which must be above 0" "which is said"
run train --optimizer adafactor --beta1 0.9 -o never "$model"
status_is 2 "Adafactor keeps no average of gradients"
err_has "--beta1: --optimizer adafactor has none" "which is said"
run train --optimizer adafactor --warmup-init -o never "$model"
status_is 2 "--warmup-init is the beginning of a relative step"
err_has "--warmup-init: goes with --relative-step" "which is said"
run train --optimizer adafactor --clip-threshold 0 -o never "$model"
status_is 2 "a threshold of 0 leaves nothing"

done_testing
