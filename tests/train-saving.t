#!/bin/sh
# train-saving.t - tp-run train: what is saved, when, and what a run goes on from
. "$top_srcdir/tests/lib.sh"

model=$data/models/llama-gqa

awk 'BEGIN { for (i = 0; i < 40; i++) { printf "{\"ids\":["
    m = 9 + i * 7 % 23
    for (k = 0; k < m; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 95
    print "]}" } }' > ids.jsonl
head -n 5 ids.jsonl > held.jsonl
# two-byte ids, each below 112
awk 'BEGIN { for (i = 0; i < 6000; i++) printf "%c%c", 65 + i * i * 7 % 26, 0 }' > few.bin

train() {
    tp-run train -q --data ids.jsonl --seq 24 --global-batch 4 --steps 8 --lr 1e-2 --threads 1 "$@"
}

same_files() {
    for f in "$1"/rank-*; do
        cmp "$f" "$2/${f##*/}" || return 1
    done
}

# last_step RUN - of its log
last_step() {
    sed -n 's/.*"type":"step","step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" | tail -n 1
}

# ---- the last step is evaluated ----

HPO_RESULT=result HPO_REPORT=report train --steps 1 --stop-after 0.000001 --eval-data held.jsonl -o late "$model"
ok "--stop-after at the last step evaluates it" grep -q '"type":"eval","step":1,' late/log.jsonl
sed -n 's/.*"eval_loss":\([^,]*\),.*/\1/p' late/log.jsonl | head -n 1 > want
ok "and the result is that evaluation's" cmp want result
HPO_RESULT=none train --stop-after 0.000001 --eval-data held.jsonl -o early "$model"
ok "a run that is stopped before has no result" test ! -e none

# ---- a finished run ----

cp late/log.jsonl log.kept
cp report report.kept
rm result
HPO_RESULT=result HPO_REPORT=report
export HPO_RESULT HPO_REPORT
run tp-run train --resume --threads 1 -o late
unset HPO_RESULT HPO_REPORT
status_is 0 "a finished run is resumed"
out_is "finished after step 1 of 1: late/step-000001" "and says so"
ok "it changes nothing in the log" cmp log.kept late/log.jsonl
ok "nor in the report" cmp report.kept report
ok "and has the same result" cmp want result
train --save-every 4 -o whole "$model"
cp whole/log.jsonl log.kept
HPO_RESULT=result tp-run train -q --resume --threads 1 -o whole
sed -n 's/.*"step":8,"loss":\([^,]*\),.*/\1/p' log.kept > want
ok "without evaluations the result is the last step's loss" cmp want result
ok "and the log is as it was" cmp log.kept whole/log.jsonl
run tp-run train -q --resume --steps 7 -o whole
status_is 2 "a run cannot end before where it is"
err_has "tp-run: --steps 7: whole/step-000008 has done 8 steps already" "and says so"
cp -r whole longer
run tp-run train -q --resume --steps 9 --threads 1 -o longer
status_is 0 "it can go on"
err_is "tp-run: the rate is linear over 9 steps from here on; the first 8 had that over 8" "with a word about the rate"
train --lr-schedule constant --steps 1 -o constant "$model"
run tp-run train -q --resume --steps 2 --threads 1 -o constant
err_empty "which a constant one does not need"

# ---- damage ----

train --save-every 2 -o damaged "$model"
dd if=/dev/zero of=damaged/step-000008/rank-tp0-pp0.safetensors bs=1 seek=60000 count=8 conv=notrunc 2> dd.err
rm damaged/step-000006/rank-tp0-pp0.safetensors
run tp-run train -q --resume --threads 1 -o damaged
status_is 0 "a run goes on from the newest whole checkpoint"
err_lines 1 "with one warning"
err_has "tp-run: damaged/step-000008: rank-tp0-pp0.safetensors: tensor " "of what is damaged"
err_has "; going on from damaged/step-000004, the newest that is whole" "and where it goes on"
ok "it has the bits of one that was not damaged" same_files whole/step-000008 damaged/step-000008
ok "what is damaged is set aside" test -d damaged/step-000008.damaged -a -d damaged/step-000006.damaged
ok "and each step is in the log once" test "$(grep -c '"type":"step"' damaged/log.jsonl)" = 8
cp -r whole lost
rm lost/step-000008/checkpoint.json
run tp-run train -q --resume --threads 1 -o lost
status_is 0 "one that lost its manifest is done again"
ok "with the same bits" same_files whole/step-000008 lost/step-000008
ok "and what is left of it is set aside" test -d lost/step-000008.damaged
for step in 2 4 6 8; do
    printf x | dd of=damaged/step-00000$step/rank-tp0-pp0.safetensors bs=1 seek=60000 conv=notrunc 2> dd.err
done
run tp-run train -q --resume --steps 9 --threads 1 -o damaged
status_is 3 "where none is whole, none is gone on from"
err_has "; and no other checkpoint is whole" "and that is said"

# ---- failures ----

# wait_for_step RUN N - until the run is there
wait_for_step() {
    tries=0
    while ! grep -qs "\"step\":$2," "$1/log.jsonl" && [ $tries -lt 400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

# fails OPTION... - a long run in bad on two replicas, one of whose files ends after the first step
fails() {
    rm -rf bad
    tp-run train -q --seq 24 --global-batch 4 --steps 1000000 --threads 1 --dp 2 --rank-timeout 60 -o bad "$@" "$model" 2> err &
    pid=$!
    wait_for_step bad 1
    cp few.bin kept.bin
    : > cut.bin
    status=0
    wait $pid || status=$?
}

cp few.bin cut.bin
fails --data cut.bin
status_is 3 "data that ends under a run ends it"
err_has "cut.bin: " "by name"
step=$(last_step bad)
ok "what it has done is saved" test -d "bad/$(printf 'step-%06d' "$step")"
cp few.bin cut.bin
run tp-run train -q --resume --stop-after 0.000001 --threads 1 -o bad
status_is 0 "and gone on from"
ok "by the next step" test "$(last_step bad)" = $((step + 1))

cp few.bin cut.bin
fails --data few.bin --eval-data cut.bin --eval-every 50 --save-every 50
status_is 3 "data to evaluate on that end end a run"
step=$(last_step bad)
ok "after the checkpoint of that step" test -d "bad/$(printf 'step-%06d' "$step")" -a $((step % 50)) = 0
cp few.bin cut.bin
run tp-run train -q --resume --stop-after 0.000001 --threads 1 -o bad
ok "which the next start evaluates first" grep -q "\"type\":\"eval\",\"step\":$step," bad/log.jsonl

# ---- schedules ----

# plateau OPTION... - the rate falls with each second evaluation
plateau() {
    train --lr-schedule reduce_lr_on_plateau --patience 1 --factor 0.5 --threshold 0.9 --eval-data held.jsonl --eval-every 1 "$@"
}

# rates RUN - of its steps
rates() {
    sed -n 's/.*"type":"step".*"learning_rate":\([^,]*\),.*/\1/p' "$1/log.jsonl" | tr '\n' ' '
}

plateau --save-every 3 -o plateau "$model"
ok "a rate follows the losses of evaluations" test "$(rates plateau)" = \
    "0.01 0.01 0.01 0.005 0.005 0.0025 0.0025 0.00125 "
cp -r plateau parts
rm -r parts/step-000008 parts/step-000006
run tp-run train -q --resume --threads 1 -o parts
status_is 0 "and goes on where it was"
ok "with the same bits" same_files plateau/step-000008 parts/step-000008
run train --lr-schedule greedy -o none "$model"
status_is 2 "without evaluations there is nothing to follow"
err_has "--lr-schedule greedy: follows evaluations: give --eval-every" "which is said"
run train --lr-schedule polynomial --lr 1e-7 -o none "$model"
status_is 2 "a polynomial does not rise to its end"
err_has "--lr 1e-07: --lr-schedule polynomial falls to --min-lr 1e-07, which is not below" "and both are told"
run train --lr-schedule warmup_stable_decay -o none "$model"
err_has "--lr-schedule warmup_stable_decay: give --decay-steps" "a schedule of three stages needs the last"
run train --lr-schedule warmup_stable_decay --decay-steps 6 --warmup 3 -o none "$model"
err_has "--warmup 3 and --decay-steps 6 are more than --steps 8" "and room for it"
run train --lr-schedule cosine_with_min_lr -o none "$model"
err_has "give either --min-lr or --min-lr-ratio" "one with a lowest rate needs that"
run train --patience 3 -o none "$model"
status_is 2 "an option of another schedule is refused"
err_has "--patience: --lr-schedule linear has none" "by name"
ok "none of these left anything" test ! -e none

# ---- an early end ----

echo '{"ids":[1,2,1,1,2,2,0,1,2,0,0,1]}' > other.jsonl # worse with each step
head -n 1 ids.jsonl > learnt.jsonl
HPO_RESULT=result tp-run train --data learnt.jsonl --pack none --seq 24 --global-batch 4 --steps 30 --lr 1e-2 --threads 1 \
    --eval-data other.jsonl --eval-every 2 --early-stop 3 -o early2 "$model" > out
ok "evaluations that no longer gain end a run" grep -q '"type":"train","step":[0-9]*,"finished":true,.*"early":true' early2/log.jsonl
evals=$(sed -n 's/.*"eval_loss":\([^,]*\),"eval_runtime.*/\1/p' early2/log.jsonl)
ok "after the third" test "$(echo "$evals" | awk 'NR == 1 || $1 < low { low = $1; n = 0; next } { n++ } END { print n }')" = 3
ok "which the last line says" grep -q '^finished after step [0-9]* of 30, without gain in 3 evaluations: early2/step-' out
ok "the result is the last evaluation's" test "$(cat result)" = "$(echo "$evals" | tail -n 1)"
cp early2/log.jsonl log.kept
run tp-run train --resume --threads 1 -o early2
status_is 0 "it stays finished"
ok "when it is resumed" cmp log.kept early2/log.jsonl
run tp-run train -q --resume --early-stop 9 --stop-after 0.000001 --threads 1 -o early2
ok "unless more evaluations are waited for" test "$(last_step early2)" -gt "$(sed -n 's/.*"type":"train","step":\([0-9]*\),.*/\1/p' log.kept)"

# ---- what is shown ----

for columns in 60 100; do
    rm -rf shown
    "$top_builddir/tests/on-pty" -c $columns tp-run train --data ids.jsonl --eval-data held.jsonl --eval-every 4 --seq 24 --steps 8 \
        --threads 1 -o shown "$model" < /dev/null | tr '\r' '\n' | sed "s/$(printf '\033')\[K//" > lines
    ok "progress fits a window of $columns columns" awk -v most=$columns 'length($0) >= most { print; bad = 1 } END { exit bad }' lines
    ok "and tells what is done" sh -c "grep -q '^loading' lines && grep -q '^evaluating: 0 %' lines && grep -q '\] 8/8  loss [0-9.]*  00:00:00 left' lines"
    ok "its last line is where the checkpoint is" test "$(grep -v '^$' lines | tail -n 1)" = \
        "tp-run: finished after step 8 of 8: shown/step-000008"
done
ok "a wide window has the tokens, too" grep -q ' tokens/s' lines
tp-run train --data ids.jsonl --seq 24 --steps 8 --threads 1 --log-every 3 --log log --metrics metrics --tensorboard board -o plain "$model" > out
ok "--log-every prints fewer lines" test "$(cut -d ' ' -f 1,2 out | tr '\n' ,)" = "step 3/8,step 6/8,step 8/8,finished after,"
ok "and leaves out none of the log" test "$(grep -c '"type":"step"' log)" = 8
ok "--metrics has the last loss" grep -qxF "tp_run_train_loss{run=\"plain\"} $(sed -n 's/.*"step":8,"loss":\([^,]*\),.*/\1/p' log)" metrics
ok "and the tokens" grep -qxF "tp_run_train_tokens_total{run=\"plain\"} $(sed -n 's/.*"step":8,.*"tokens":\([^,]*\),.*/\1/p' log)" metrics
ok "--tensorboard has an event for each number" test "$(grep -ac 'train/learning_rate' board/events.out.tfevents.*)" -ge 1
run tp-run train --data ids.jsonl --seq 24 --steps 2 --threads 1 --metrics missing/metrics --save-every 0 "$model"
status_is 0 "metrics that cannot be written do not end a training"
err_has "; training goes on without" "but are told once"
err_lines 1 "in one line"

# ---- a run as a model ----

run tp-shard show whole
cp out got
run tp-shard show whole/step-000008
ok "show takes the newest checkpoint of a run" cmp out got
tp-shard merge -q whole merged && tp-shard merge -q whole/step-000008 merged8
ok "and so does merge" cmp merged/model.safetensors merged8/model.safetensors
tp-run generate -q --ids 5,6 --max-tokens 3 --seed 1 whole > got
tp-run generate -q --ids 5,6 --max-tokens 3 --seed 1 whole/step-000008 > want
ok "and generate" cmp want got
run tp-run train -q --steps 2 --data ids.jsonl --seq 24 --threads 1 -o onward whole
status_is 0 "and train"
ok "which notes the files of that" grep -q '"path":".*/whole/step-000008/checkpoint.json"' onward/run.json
cp -r whole torn
sed 's/"version"/"vers1on"/' whole/step-000008/checkpoint.json > torn/step-000008/checkpoint.json
run tp-run generate -q --ids 5,6 --max-tokens 3 torn
status_is 3 "where it is damaged they take no other"
err_is "tp-run: torn/step-000008/checkpoint.json: its checksum does not match its text; older checkpoints: torn/step-000004" \
    "but name the older ones"
rm -r torn/step-*
run tp-shard show torn
status_is 3 "a run without a checkpoint is no model"
err_is "tp-shard: torn: the run has no checkpoint yet" "which is said"

# ---- a fork ----

run tp-run train -q --fork whole/step-000004 --threads 1 -o fork
status_is 0 "a run begins where another was"
ok "and goes on with all it has: its last step is the other's" same_files whole/step-000008 fork/step-000008
ok "its log has its own steps" test "$(grep -c '"type":"step"' fork/log.jsonl)" = 4
run tp-run train -q --fork whole/step-000004 --lr 1e-3 --steps 6 --stop-after 0.000001 --log-samples --threads 1 -o fork2
status_is 0 "with another rate"
ok "which is that of its step" near 1e-3*2/6 "$(sed -n 's/.*"step":5,.*"learning_rate":\([^,]*\),.*/\1/p' fork2/log.jsonl)" 1e-12
rm -r fork2/step-000005
run tp-run train -q --resume --threads 1 -o fork2
status_is 0 "and is resumed, without a checkpoint too"
run tp-run train -q --fork whole/step-000004 --lr 1e-3 --steps 6 --threads 1 -o fork3
ok "with the same bits" same_files fork3/step-000006 fork2/step-000006
run tp-run train -q --fork whole --steps 9 --threads 1 -o forked
ok "a run is forked from its newest checkpoint" grep -q '"model":".*/whole/step-000008"' forked/run.json
run tp-run train -q --fork whole/step-000008 --threads 1 -o fork4
status_is 2 "where there are no more steps there is nothing to fork"
err_has "tp-run: --steps 8: whole/step-000008 has done 8 steps already" "which is said"
run tp-run train -q --fork nowhere --threads 1 -o fork4
err_is "tp-run: nowhere: no such file or directory" "one that is not there is named"
run tp-run train -q --fork "$model" --threads 1 -o fork4
status_is 3 "a model is no checkpoint of a run"
err_has "not a checkpoint of a run of tp-run train, which has run.json beside it; to begin with weights alone, give it as the model" "which is said, with what may be meant"
run tp-run train -q --fork whole/step-000004 --optimizer momentum --threads 1 -o fork4
status_is 3 "another optimizer has nothing to begin with"
ok "none of these left anything" test ! -e fork4
# steps that f16 passes over are none of the schedule's, whatever a fork goes on with
run tp-run train -q --fork whole/step-000004 --compute f16 --clip 1e9 --steps 6 --threads 1 -o half
status_is 0 "a run of f32 goes on with f16"
ok "by the first loss scale" grep -q '"loss_scale":65536' half/step-000006/checkpoint.json
echo '{"ids":[3,4,5],"label":900}' > far.jsonl
labelled="tp-run train -q --threads 1 --lr 1e-3"
$labelled --data far.jsonl --compute f16 --seq 8 --global-batch 1 --steps 9 --warmup 8 --save-every 9 --stop-after 0.000001 -o f16 "$data/heads/gemma2-score"
passed=$(sed -n 's/.*"overflows":\([0-9]*\).*/\1/p' f16/step-000001/checkpoint.json)
ok "gradients overflow" test "$passed" = 1
run $labelled --fork f16 --compute bf16 -o bf16
ok "after it the rate goes on" near "1e-3*(2-$passed)/8" "$(sed -n 's/.*"step":3,.*"learning_rate":\([^,]*\),.*/\1/p' bf16/log.jsonl)" 1e-12

done_testing
