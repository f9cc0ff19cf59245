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
for edit in 's/"form":"like"/"form":"rows"/|of the form .rows., which this program' \
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

# ---- ZeRO: replicas share the optimizer's state ----

# both NAME OPTION... - without and with --zero 1
both() {
    name=$1
    shift
    rm -rf zero0 zero1
    train --steps 3 --save-every 2 "$@" -o zero0
    train --steps 3 --save-every 2 --zero 1 "$@" -o zero1
    ok "ZeRO 1 changes no bit: $name" sh -c "test -s zero1/step-000003/checkpoint.json" &&
        ok "nor of a checkpoint's state: $name" same_files zero0/step-000003 zero1/step-000003
}
both "dp 2" --dp 2 "$model"
both "dp 4 with momentum" --dp 4 --optimizer momentum "$model"
both "dp 2 and a tied table on two stages" --dp 2 --pp 2 "$data/models/gpt2-awkward"
both "dp 2 where ranks of tp have a KV head in common and other shards" --dp 2 --tp 3 --clip 0.1 "$data/models/gemma3"
both "dp 2, experts" --dp 2 --tp 2 "$data/models/mixtral"
both "dp 2 in a tree" --dp 2 --deterministic "$model"

# a run goes from any stage and layout to any other
train --steps 3 --save-every 2 --deterministic -o steady "$model"
for way in '--dp 2 --zero 1|--dp 1' '--dp 1|--dp 4 --zero 1' '--dp 4 --zero 1|--dp 2 --zero 1' '--dp 2 --zero 1|--dp 2'; do
    rm -rf moves
    # shellcheck disable=SC2086 # words are wanted
    train --steps 3 --save-every 2 --deterministic ${way%|*} -o moves "$model"
    rm -r moves/step-000003
    # shellcheck disable=SC2086 # words are wanted
    run train --resume --deterministic ${way#*|} -o moves
    status_is 0 "a run of ${way%|*} goes on with ${way#*|}"
    ok "to the same bits" same_files steady/step-000003 moves/step-000003
done
run train --steps 1 --save-every 0 --zero 2 "$model"
status_is 2 "stage 2 is not there"
err_has "--zero 2: expected 0 or 1" "which is said"

# what each rank keeps, to the byte
for layout in "--dp 2" "--dp 4 --tp 2" "--dp 2 --pp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    run train --steps 1 --save-every 0 --pack none --zero 1 $layout --report-memory "$data/models/llama-gqa"
    sed -n 's/.*"optimizer":\([0-9]*\).*/\1/p' err | sort > kept
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 1 --zero 1 $layout --schedule 1f1b --json \
        "$data/models/llama-gqa" | tr '{' '\n' | sed -n 's/.*"optimizer":\([0-9]*\).*/\1/p' | sort -u > foretold
    ok "mem-estimate foretells the state of every rank of $layout" sh -c "test -s kept && sort -u kept | cmp - foretold"
done

done_testing
