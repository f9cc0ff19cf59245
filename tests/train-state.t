#!/bin/sh
# train-state.t - what a training keeps beside its weights, in checkpoints and in memory
. "$top_srcdir/tests/lib.sh"

model=$data/models/llama-groups # bf16, KV heads that do not divide

awk 'BEGIN { for (i = 0; i < 20; i++) { printf "{\"ids\":["
    m = 9 + i * 7 % 17
    for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 55
    print "]}" } }' > ids.jsonl

# train OPTION... - a short run on the ids, one thread a rank
train() {
    tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --lr 1e-2 --threads 1 "$@"
}

# same_files A B - the directories have the same rank files
same_files() {
    for f in "$1"/rank-*; do
        cmp "$f" "$2/${f##*/}" || return 1
    done
}

# ---- states in a checkpoint ----

train --steps 2 --save-every 1 -o run "$model"
state=run/step-000002/checkpoint.json
ok "a training's checkpoint is of version 3" grep -q '"version":3,' $state
sed -n '/^"states"/,/]/p' $state > states
cat > want <<'END'
"states":[
{"role":"master","kind":"master","form":"like"},
{"role":"exp_avg","kind":"slot","form":"like"},
{"role":"exp_avg_sq","kind":"slot","form":"like"}],
END
ok "it lists the states that it has" cmp want states
tp-shard reshard -q --tp 2 run/step-000002 cut
sed -n '/^"states"/,/]/p' cut/checkpoint.json > states
ok "and so does another cut of it" cmp want states
train --optimizer sgd --steps 1 -o sgd "$data/models/llama-gqa"
ok "a training that keeps nothing makes one of version 2" grep -q '"version":2,' sgd/step-000001/checkpoint.json

# an average is state of a kind that the optimizer does not have
cp -r run/step-000002 average
sed -i 's/"role":"exp_avg_sq","kind":"slot"/"role":"exp_avg_sq","kind":"average"/' average/checkpoint.json
reseal average
tp-shard reshard -q --tp 2 average cut2
ok "an average stays one in another cut" grep -q '"kind":"average"' cut2/checkpoint.json
ok "with its numbers" tp-shard diff average cut2

# what is not known is refused by name
for edit in 's/"form":"like"/"form":"cubes"/|of the form .cubes., which this program' \
    's/"kind":"slot"/"kind":"sketch"/|of the kind .sketch., which this program' \
    's/{"role":"exp_avg",[^}]*},/{},/|an incomplete state' \
    '/^{"role":"exp_avg","kind"/d|its role .exp_avg. is none of "states"' \
    's/^"cast"/"base":[{"name":"m.safetensors","size":7,"crc32":"0000000a"}],\n&/|a weight beside a "base"'; do
    rm -rf odd
    cp -r run/step-000002 odd
    sed -i "${edit%%|*}" odd/checkpoint.json
    reseal odd
    run tp-shard verify odd
    status_is 1 "verify finds ${edit%%|*}"
    run tp-shard merge -q odd never
    status_is 3 "a merge refuses it"
    ok "by name" grep -q "${edit#*|}" err
done

# version 2 had the same tensors without the list
cp -r run older
rm -r older/step-000002
sed -i 's/"version":3,/"version":2,/; /^"states"/,/]/d' older/step-000001/checkpoint.json
reseal older/step-000001
run train --resume --steps 2 -o older
status_is 0 "a checkpoint of version 2 is gone on from"
ok "to the same bits" same_files older/step-000002 run/step-000002

# ---- the optimizer of a run ----

# run.json of before there were other optimizers
cp -r run before
rm -r before/step-000002
sed -i 's/"optimizer":"adamw","momentum":[^,]*,//' before/run.json
run train --resume --optimizer sgd --steps 2 -o before
status_is 2 "a run without an optimizer in its run.json is not resumed with sgd"
err_has '"sgd": the run in before/run.json was begun with "adamw", and goes on with it' "since it had adamw"
run train --resume --optimizer adamw --steps 2 -o before
status_is 0 "with adamw it is"
ok "to the same bits" same_files before/step-000002 run/step-000002
for option in '--beta1 0.9' '--beta2 0.9' '--eps 1e-8' '--momentum 0.5'; do
    run train --optimizer sgd $option --steps 1 -o never "$model"
    status_is 2 "sgd has no ${option% *}"
    err_has "${option% *}: --optimizer sgd has none" "which is said"
done
run train --optimizer momentum --eps 1e-8 --steps 1 -o never "$model"
status_is 2 "nor has momentum an eps"

# ---- memory ----

# of NAME of rank RANK, in bytes
bytes_of() {
    sed -n "s/^{\"type\":\"memory\",\"rank\":$2,.*\"$1\":\([0-9]*\).*/\1/p" err
}
run train --steps 1 --save-every 0 --tp 2 --report-memory "$model"
status_is 0 "a training reports its memory"
ok "of each rank" test "$(grep -c '"type":"memory"' err)" = 2
ok "gradients as many as weights" test "$(bytes_of gradients 1)" = "$(bytes_of weights 1)"
ok "and twice as many moments" test "$(bytes_of optimizer 1)" = $((2 * $(bytes_of weights 1)))

# ---- ZeRO: replicas share the optimizer's state, sums of gradients, weights ----

# alike NAME STAGES OPTION... - checkpoints of these stages of ZeRO have the same bits
alike() {
    name=$1
    stages=$2
    shift 2
    for stage in $stages; do
        rm -rf "zero$stage"
        train --steps 3 --save-every 2 --zero "$stage" "$@" -o "zero$stage"
    done
    for stage in ${stages#* }; do
        ok "ZeRO $stage has the bits of ZeRO ${stages%% *}: $name" test -s "zero$stage/step-000003/checkpoint.json" &&
            ok "and those of its state: $name" same_files "zero${stages%% *}/step-000003" "zero$stage/step-000003"
    done
}
alike "dp 2" "0 1" --dp 2 "$model"
alike "dp 2" "2 3" --dp 2 "$model"
alike "dp 2 in a tree" "0 1 2 3" --dp 2 --deterministic "$model"
alike "dp 4, one micro-batch a replica, with momentum" "0 1 3" --dp 4 --optimizer momentum "$model"
alike "dp 2 and a tied table on two stages" "0 1 2 3" --dp 2 --pp 2 --micro-batch 2 "$data/models/gpt2-awkward"
alike "dp 2 where ranks of tp have a KV head in common and other shards" "0 1 3" --dp 2 --tp 3 --clip 0.1 --micro-batch 2 "$data/models/gemma3"
alike "dp 2, experts, evaluations" "0 1 3" --dp 2 --tp 2 --micro-batch 2 --eval-fraction 0.2 --eval-every 2 "$data/models/mixtral"
alike "an adapter" "0 3" --dp 2 --micro-batch 2 --lora 4 "$model"
alike "recomputation and dropout" "0 3" --dp 2 --micro-batch 2 --recompute full --dropout 0.1 "$model"
alike "pairs of four replicas share, an average" "1 2 3" --dp 4 --hsdp 2 --ema 0.9 --init "$model"
train --steps 3 --save-every 2 --dp 4 --ema 0.9 --init -o whole "$model"
ok "as many as share nothing" same_files whole/step-000003 zero3/step-000003
for more in "" --deterministic; do
    rm -rf whole1 alone1
    # shellcheck disable=SC2086 # no word
    train --steps 2 --dp 2 $more -o whole1 "$model"
    # shellcheck disable=SC2086 # no word
    train --steps 2 --dp 2 --zero 1 --hsdp 1 $more -o alone1 "$model"
    ok "replicas that share with none sum gradients all the same${more:+, with $more}" same_files whole1/step-000002 alone1/step-000002
done

# ---- the optimizer's state in memory of the host ----

train --steps 3 --save-every 2 --dp 4 --zero 1 --ema 0.9 --init --offload optimizer -o away "$model"
ok "what is offloaded has the same bits" same_files whole/step-000003 away/step-000003
rm -r away/step-000003
run train --resume --zero 2 --dp 4 --offload optimizer -o away
status_is 0 "a run that offloads goes on"
ok "to the same bits" same_files whole/step-000003 away/step-000003
train --steps 1 --save-every 0 --pack none --dp 2 --offload optimizer --json "$data/models/llama-gqa" > out
mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --dp 2 --offload optimizer --json "$data/models/llama-gqa" > foretold
ok "mem-estimate counts it apart" test "$(sed -n 's/.*"memory":\([0-9]*\).*/\1/p' out)" = "$(sed -n 's/.*"peak":\([0-9]*\).*/\1/p' foretold)"

run train -n --dp 2 --offload optimizer "$data/models/llama-gqa"
out_has "; 225.25 KiB for them and gradients, 225.25 KiB for the optimizer in memory of the host," "and so does a dry run"

# a run goes from any stage and layout to any other
train --steps 3 --save-every 2 --deterministic -o steady "$model"
for way in '--dp 2 --zero 1|--dp 1' '--dp 1|--dp 4 --zero 3' '--dp 4 --zero 3|--dp 2 --zero 1' '--dp 2 --zero 2|--dp 4 --zero 3 --hsdp 2' '--dp 2 --zero 3|--dp 2'; do
    rm -rf moves
    # shellcheck disable=SC2086 # words are wanted
    train --steps 3 --save-every 2 --deterministic ${way%|*} -o moves "$model"
    rm -r moves/step-000003
    # shellcheck disable=SC2086 # words are wanted
    run train --resume --deterministic ${way#*|} -o moves
    status_is 0 "a run of ${way%|*} goes on with ${way#*|}"
    ok "to the same bits" same_files steady/step-000003 moves/step-000003
done
run train --steps 1 --save-every 0 --zero 4 "$model"
status_is 2 "there is no stage 4"
err_has "--zero 4: no stage from 0 to 3" "which is said"
run train --steps 1 --save-every 0 --zero 3 --dp 4 --hsdp 3 "$model"
status_is 2 "replicas share in groups of equal size"
err_has "--hsdp 3: does not divide dp 4" "which is said"

# what each rank keeps, to the byte

# parts GATHERED - weights, what is gathered of them, gradients and optimizer of each line
parts() {
    awk -v gathered="$1" 'function of(name) {
        return match($0, "\"" name "\":[0-9]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
    }
    of("optimizer") { print of("weights"), of(gathered), of("gradients"), of("optimizer") }' | sort -u
}
for layout in "--zero 1 --dp 2" "--zero 1 --dp 4 --tp 2" "--zero 2 --dp 2 --pp 2" "--zero 3 --dp 4" "--zero 3 --dp 4 --hsdp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    run train --steps 1 --save-every 0 --pack none $layout --report-memory "$data/models/llama-gqa"
    parts gathered_weights < err > kept
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 1 $layout --schedule 1f1b --json \
        "$data/models/llama-gqa" | tr '{' '\n' | parts comm > foretold
    # shellcheck disable=SC2086 # words are wanted
    train -n --pack none $layout "$data/models/llama-gqa" | sed -n 's/^stage.*; \([0-9.]* KiB\) for them, gradients and optimizer.*/\1/p' > planned
    awk '{ printf "%.2f KiB\n", ($1 + $2 + $3 + $4) / 1024 }' kept > summed
    ok "a dry run counts them" sh -c "test -s planned && ! grep -vxFf summed planned"
    ok "mem-estimate foretells the state of every rank of $layout" sh -c "test -s kept && cmp kept foretold"
    sed -n 's/.*"total":\([0-9]*\).*/\1/p' err | sort -u > kept
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 1 $layout --schedule 1f1b --threads 1 --json \
        "$data/models/llama-gqa" | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -u > foretold
    ok "and with its threads all bytes that it has" sh -c "test -s kept && cmp kept foretold"
done

done_testing
