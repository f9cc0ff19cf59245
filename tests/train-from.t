#!/bin/sh
# train-from.t - trainings that another trainer began go on here, as they went on there (tests/oracle/make-resumed.py)
. "${top_srcdir:?}/tests/lib.sh"
PATH=$top_builddir/tests:$PATH
gzip -dc "$data/resumed.tar.gz" | tar xf - || exit 99
cd resumed || exit 99

# KIND OPTION...: three steps, to KIND.run
go_on() {
    kind=$1
    shift
    run tp-run train -q --resume-from "$kind" --data data.jsonl --order sequential --pack none --global-batch 4 \
        --threads 1 --log "$kind.log" -o "$kind.run" "$@"
}

# Is the weight of the last step of the run that of the file, within f32's noise?
reaches() {
    rm -rf merged && tp-shard merge -q "$1" merged &&
        names=$(tp-shard show "$2" | sed -n 's/^\([^ ]*\) *F32.*/\1/p') &&
        compare-tensors "$2" merged/model.safetensors "${3-3e-6}" $names
}

# The numbers that KIND.json has of what KIND.log calls KEY, and it itself, side by side
beside() {
    sed -n "s/.*\"type\":\"step\".*\"$3\":\([^,]*\),.*/\1/p" "$1.log" > got
    list "$1.json" "$2" | tr ',' '\n' | tail -n 3 | paste - got
}
alike() {
    beside "$@" | awk -v most="$4" '
        { d = $1 - $2; n += d <= most && -d <= most }
        END { exit n != 3 }'
}

for kind in trainer trainer-cosine fsdp fsdp-groups zero1 zero2 zero3; do
    go_on $kind --steps 6
    status_is 0 "$kind: goes on"
    err_empty "$kind: with nothing to say"
    ok "$kind: its losses are those there" alike $kind loss loss 2e-6
    ok "$kind: and so are its rates" alike $kind rate learning_rate 1e-12
    ok "$kind: and its weights after six steps" reaches $kind.run $kind.safetensors
    ok "$kind: which have gone far" sh -c "! tp-shard diff --tolerance 1e-3 $kind $kind.safetensors"
done
ok "one group decays as a whole" grep -q '"weight_decay":0.1,"decays":"all"' fsdp.run/run.json
ok "two as they say" grep -q '"weight_decay":0.2,"decays":"usual"' fsdp-groups.run/run.json
# and back: the form of another framework has what the run had, its rate, too
go_on trainer-cosine -f --stop-after 0.000001
tp-shard merge -q --export dcp trainer-cosine.run back
run tp-run train -q --resume-from back --data data.jsonl --order sequential --pack none --global-batch 4 \
    --lr-schedule cosine --warmup 2 --lr 0.01 --steps 6 --threads 1 -o back.run
status_is 0 "what was exported goes on"
err_empty "at the rate that the schedule has there"
ok "it comes to the same" reaches back.run trainer-cosine.safetensors
# Trainer's own form, which tests/oracle/check-resumed.py saw Trainer go on from
run tp-shard merge -q --export trainer trainer-cosine.run back.trainer
status_is 0 "a checkpoint of Trainer is written"
ls back.trainer > names
same_text names "config.json
generation_config.json
model.safetensors
optimizer.pt
scheduler.pt
trainer_state.json" "of the files that it resumes"
run tp-run train -q --resume-from back.trainer --data data.jsonl --order sequential --pack none --global-batch 4 \
    --lr-schedule cosine --warmup 2 --lr 0.01 --threads 1 -o back.run -f
status_is 0 "which goes on"
err_empty "at its rate, for as many steps"
ok "it comes to the same" reaches back.run trainer-cosine.safetensors
go_on universal3 --steps 6
status_is 0 "what DeepSpeed's tool made of stage 3 goes on"
err_empty "with nothing to say"
ok "it comes to the same" reaches universal3.run zero3.safetensors
ok "its settings are those there" grep -q '"beta1":0.8,"beta2":0.99,"eps":1e-07' universal3.run/run.json
# DeepSpeed's universal form says groups, updates and rates as well
tp-shard merge -q --export deepspeed-universal trainer-cosine.run back.universal
run tp-run train -q --resume-from back.universal --data data.jsonl --order sequential --pack none --global-batch 4 \
    --lr-schedule cosine --warmup 2 --lr 0.01 --steps 6 --threads 1 -o back.run -f
status_is 0 "the universal form goes on"
err_empty "at its rate"
ok "it comes to the same" reaches back.run trainer-cosine.safetensors
run tp-shard merge -q --export trainer trainer again
status_is 0 "so does what Trainer wrote"
ok "it has its groups" sh -c "tp-run train -q --resume-from again --data data.jsonl --order sequential --pack none \
    --global-batch 4 --threads 1 --lr-schedule linear --warmup 2 -o again.run 2> err && test ! -s err"
ok "and comes to the same" reaches again.run trainer.safetensors
run tp-shard merge -q -f --export dcp trainer-cosine.run back.trainer
status_is 2 "a directory that has weights is no other form's export"
run tp-shard merge -q -f --export trainer trainer-cosine.run back.trainer
status_is 0 "but its own"
go_on trainer -f --tp 2 --pp 2 --dp 2 --zero 3
status_is 0 "on eight ranks that share"
ok "it comes to the same" reaches trainer.run trainer.safetensors

# a run that stops goes on as any other, also from its beginning
go_on trainer -f --stop-after 0.000001
rm -r trainer.run/step-*
run tp-run train -q --resume --threads 1 -o trainer.run
status_is 0 "without a checkpoint of its own it begins again where the other trainer was"
ok "it comes to the same" reaches trainer.run trainer.safetensors

go_on trainer -f --lr 1e-3 --warmup 2
err_is "tp-run: trainer: the rate of step 4 is 0.0075 there, and 0.00075 by --lr-schedule linear" \
    "another rate is told"
go_on trainer -f --lr-schedule constant
err_is "tp-run: trainer: the rate of step 4 is 0.0075 there, and 0.01 by --lr-schedule constant" "and another schedule"
sed 's/"max_steps": 6/"max_steps": 60/' trainer/trainer_state.json > changed && mv changed trainer/trainer_state.json
go_on trainer -f
status_is 2 "rates that no schedule has need one"
err_has "its rate is 0.0075 of 0.01 after 3 steps, which no schedule alone has: give --lr-schedule" "a line says so"

go_on trainer -f --optimizer lion
status_is 2 "moments of AdamW are no other optimizer's"
for other in nadam uncorrected; do
    cp trainer-cosine/[!o]* $other
    go_on $other
    status_is 1 "nor those of $other AdamW's"
    err_has "$other: its optimizer has " "a line says so"
done
go_on "$data/models/llama-gqa" -o none
status_is 3 "a model alone has no optimizer"
err_has "has no state of an optimizer of PyTorch" "a line says so"
run tp-run train --resume-from trainer trainer --data data.jsonl -o none
status_is 2 "it takes the place of a model"

# what Trainer loads by the names of modules, and what it has no place for
three() {
    tp-run train -q --data data.jsonl --threads 1 --steps 1 --save-every 1 --global-batch 4 -o "$1.run" -f "$2" ${3-}
}
cp -r "$data/models/gpt2-untied" bare
LC_ALL=C sed 's/"transformer\.\([^"]*\)"/            "\1"/g' "$data/models/gpt2-untied/model.safetensors" > bare/model.safetensors
ok "GPT-2's files may lack a prefix" sh -c 'tp-shard show bare | grep -q "^h.0.ln_1.bias "'
three bare bare
run tp-shard merge -q --export trainer bare.run/step-000001 bare.trainer
status_is 0 "a training of such is exported"
ok "by the names that Trainer's modules have" sh -c 'tp-shard show bare.trainer | grep -q "^transformer.h.0.ln_1.bias "'
three half "$data/models/apertus" "--weight-decay 0.1 --decays matrices"
run tp-shard merge -q --export trainer half.run/step-000001 never
status_is 1 "what decays in another way than its two groups is refused"
err_has "alpha_p: --decays matrices is not as the two groups of Trainer decay" "by the weight"
three half "$data/models/apertus" "--weight-decay 0.1 --decays usual"
run tp-shard merge -q --export trainer half.run/step-000001 half.trainer
status_is 0 "the usual is not"
ok "of bf16 the masters are written" sh -c 'grep -q "\"dtype\": \"float32\"" half.trainer/config.json &&
    tp-shard show half.trainer | grep -q "lm_head.weight *F32"'
run tp-shard merge -q --export trainer --weights-only half.run/step-000001 never
status_is 1 "without moments there is nothing to resume"
err_has "no moments of Adam are exported" "a line says so"
run tp-shard merge -q --export trainer nadam never
status_is 1 "nor is there of another optimizer"
err_has "nadam: its optimizer has Nesterov momentum (torch.optim.NAdam), which AdamW has not" "a line says so"
ok "and nothing has the final name" test ! -e never

mkdir cut && cp trainer-cosine/* cut && head -c 9000 trainer-cosine/optimizer.pt > cut/optimizer.pt
go_on cut
status_is 3 "a file that is cut off is refused"
err_has "cut/optimizer.pt: " "by its name"
ok "and nothing is left" test ! -e cut.run
done_testing
