#!/bin/sh
# first-hour.t - what newcomers type first is taken as meant, or answered with the line to type
. "${top_srcdir:?}/tests/lib.sh"
cp -r "$bard" bard
chmod -R u+w bard

# answers STATUS TEXT NAME COMMAND... - ends with the status, and the first line of standard error is the text
answers() {
    answers_status=$1
    answers_text=$2
    answers_name=$3
    shift 3
    run "$@"
    if [ "$status" -eq "$answers_status" ] && [ "$(head -n 1 err)" = "$answers_text" ]; then
        pass "$answers_name"
    else
        fail "$answers_name" "status $status" "$(cat err)"
    fi
}

# same NAME COMMAND1 COMMAND2 - both succeed, and print the same
same() {
    ok "$1" sh -c "$2 > one && $3 > two && cmp one two"
}

# tp-shard
answers 2 "tp-shard: an axis is missing, such as --tp 2" "split asks for an axis" tp-shard split bard 3
ok "and writes nothing" test ! -e 3
answers 2 "tp-shard: the output is called 3; --tp 3 is ranks, ./3 a directory" \
    "an output that is a number is asked back" tp-shard split --tp 2 bard 3
answers 0 "tp-shard: ./3: 2 rank files, 5.40 MiB" "a directory ./3 is meant" tp-shard split --tp 2 bard ./3
answers 2 "tp-shard: an axis is missing, such as --tp 2" "reshard asks for an axis" tp-shard reshard ./3 out
run tp-shard split -q --tp 2 bard quiet
err_empty "-q is quiet about what was written"
answers 0 "tp-shard: same: 57 tensors, 5.40 MiB" "merge says what was written" tp-shard merge ./3 same
run tp-shard diff bard same
out_is "57 tensors, identical" "diff of equals says so"
answers 3 "tp-shard: same: no checkpoint.json; --sums compares with a list, 'diff' two directories" \
    "verify of a merged directory points to diff" tp-shard verify same
answers 2 "tp-shard: an operand is missing: OUTPUT" "the missing operand is named" tp-shard split --tp 2 bard
answers 2 "tp-shard: operands are missing: MODEL OUTPUT" "both are" tp-shard split --tp 2
answers 2 "tp-shard: unknown command 'info'; did you mean 'show'?" "info is show" tp-shard info bard
answers 3 "tp-shard: bard/config.json: is JSON, not a safetensors file; a model with weights is named by its \
directory" "a config is no weights" tp-shard split --tp 2 bard/config.json out
answers 3 "tp-shard: bard/heldout.txt: is text, not a safetensors file" "a text is no weights" \
    tp-shard show bard/heldout.txt
printf 'version https://git-lfs.github.com/spec/v1\n' > pointer.safetensors
answers 3 "tp-shard: pointer.safetensors: is a pointer of Git LFS (git lfs pull), not a safetensors \
file" "a pointer is told from a file" tp-shard show pointer.safetensors

# families
tp-shard families llama > own.json
same "a family may be a file" "tp-shard families ./own.json" "tp-shard families --family own.json"
ok "every family that is built in passes --check" tp-shard families --check
same "which is checked" "tp-shard families --check own.json" "tp-shard families --check --family own.json"
answers 3 "tp-shard: none.json: no such family file" "a file that is missing is named" \
    tp-shard families --check none.json
# line NUMBER of own.json after sed's EDIT, which is not what the layer's lines say
edited() {
    sed 's/"family": "llama"/"family": "mine"/; s/\["llama"\]/["mine"]/; '"$1" own.json > edited.json
    edited_line=$(diff own.json edited.json | sed -n '$s/^> //p' | grep -nFf - edited.json | tail -n 1 | cut -d: -f1)
}
edited 's/linear(h, wv)/linear(h, wvv)/'
answers 3 "tp-shard: edited.json:$edited_line:27: 'wvv' is no value, tensor or symbol here" "a misspelt tensor is told, not that nothing reads it" \
    tp-shard families --check edited.json
edited 's/"tensors": {/"tensors": {"unread": ["unread","hidden",{"optional":true}],/'
answers 3 "tp-shard: edited.json:$edited_line:25: no line reads 'unread'" "a tensor that nothing reads" \
    tp-shard families --check edited.json
edited 's/linear(h, wq) + bq/linear(h, wk) + bq/'
answers 3 "tp-shard: edited.json:$edited_line:33: the bias: kv_heads*head_dim and kv_heads*group*head_dim differ" "and two that differ" \
    tp-shard families --check edited.json
printf '{"family": "kid", "extends": "llama", "match": {"model_type": ["kid"]},\n"forward": {"layer": {"q": "rope(linear(h, wq) + bqq, rot)"}}}\n' > kid.json
answers 3 "tp-shard: kid.json:2:50: 'bqq' is no value, tensor or symbol here" "in the file that says so, where families inherit" \
    tp-shard families --check kid.json
# each small language says where in the file its text is wrong
kid() { printf '{"family": "kid", "extends": "llama", "match": {"model_type": ["kid"]%s},\n%s}\n' "$1" "$2" > kid.json; }
kid '' '"symbols": {"extra": "1 + * 2"}, "forward": {"layer": {"q": "rope(linear(h, wq), rot, scale=extra)"}}'
answers 3 "tp-shard: kid.json:2:27: expected a number, a name, a 'word' or '('" "an expression" \
    tp-shard families --check kid.json
kid '' '"tensors": {"wq": ["{model.|}layers.{layer}.self_attn.q_proj.weight", "heads*(", "hidden"]}'
answers 3 "tp-shard: kid.json:2:79: expected a number, a symbol or '('" "a shape" tp-shard families --check kid.json
kid '' '"forward": {"layer": {"q": "rope(linear(h, wq), rot) +"}}'
answers 3 "tp-shard: kid.json:2:55: expected a name, a number or '('" "a line" tp-shard families --check kid.json
kid '' '"forward": {"layer": {"q": [{"when": "bias == ", "line": "rope(linear(h, wq), rot)"}, "rope(linear(h, wq), rot)"]}}'
answers 3 "tp-shard: kid.json:2:47: an operand is missing" "a condition" tp-shard families --check kid.json
cp -r bard mine
chmod -R u+w mine
sed 's/"model_type": *"llama"/"model_type":"mine"/' bard/config.json > mine/config.json
printf '{"family": "mine", "extends": "llama", "match": {"model_type": ["mine"], "when": "rope in"}}\n' > kid.json
answers 3 "tp-shard: kid.json:1:90: an operand is missing" "the condition of a match, too" \
    env SHARDUTILS_FAMILY_PATH=kid.json tp-shard split --tp 2 mine mine.tp2
edited 's/linear(h, wv)/linear(h, wvv)/'
answers 3 "tp-shard: edited.json:$edited_line:27: 'wvv' is no value, tensor or symbol here" "what could not be run is not cut" \
    tp-shard split --tp 2 --family edited.json mine mine.tp2
answers 3 "pp-partition: edited.json:$edited_line:27: 'wvv' is no value, tensor or symbol here" "into stages neither" \
    pp-partition split --pp 2 --family edited.json mine mine.pp2
edited ''
echo '{"family": ' > broken.json
run env SHARDUTILS_FAMILY_PATH="broken.json:edited.json:none" tp-shard split -q --tp 2 mine mine.tp2
status_is 0 "files on the family path that are no families are passed over"
err_is "tp-shard: broken.json:2:1: unexpected end: passed over
tp-shard: none: No such file or directory: passed over" "which is told"
run env SHARDUTILS_FAMILY_PATH=broken.json tp-run generate -q --ids 1,2 --max-tokens 1 bard
status_is 0 "by every program"
err_is "tp-run: broken.json:2:1: unexpected end: passed over" "in a line"
run env SHARDUTILS_FAMILY_PATH=broken.json pp-partition schedule --pp 2 --micro-batches 4 --plan bard
err_is "pp-partition: broken.json:2:1: unexpected end: passed over" "by a schedule too"

# a model without a command
for usual in "tp-shard show" "tp-run generate" "mem-estimate infer" "pp-partition plan"; do
    answers 2 "${usual% *}: a command is missing; did you mean '$usual bard'?" "${usual% *} MODEL names a command" \
        "${usual% *}" bard
done

# options of other tools
same "--max-new-tokens is --max-tokens" "tp-run generate -p ROMEO: --max-new-tokens 4 bard" \
    "tp-run generate --prompt ROMEO: --max-tokens 4 bard"
same "--stages and --microbatches are taken" "pp-partition schedule --stages 4 --microbatches 8" \
    "pp-partition schedule --pp 4 --micro-batches 8"
same "--zero-stage is --zero" "mem-estimate train --dp 2 --zero-stage 1 bard" "mem-estimate train --dp 2 --zero 1 bard"
same "4k are 4096 tokens" "mem-estimate infer --seq 4k bard" "mem-estimate infer --seq 4096 bard"
same "--lora alone is of rank 16" "mem-estimate train --lora bard" "mem-estimate train --lora 16 bard"
same "--lora's value may be the next word" "mem-estimate train --lora 8:q_proj bard" \
    "mem-estimate train --lora=8:q_proj bard"
answers 2 "mem-estimate: --seq: '4q' is not a whole number such as 4096 or 4k" "another letter is refused" \
    mem-estimate infer --seq 4q bard

# devices
answers 2 "mem-estimate: --gpu: 'a100' is any of a100-40g, a100-80g, a100-80g-pcie" "a100 lists the sizes" \
    mem-estimate infer --gpu a100 bard
same "4090 is one device" "mem-estimate infer --gpu 4090 bard" "mem-estimate infer --gpu rtx4090 bard"
same "8xh200 are eight in a plan" "mem-estimate plan --gpu 8xh200 bard" "mem-estimate plan --gpu h200 --gpus 8 bard"
same "--gpus 4 are replicas in training" "mem-estimate train --tp 2 --gpus 4 bard" "mem-estimate train --tp 2 --dp 2 bard"
same "4xh200 as well" "mem-estimate train --gpu 4xh200 bard" "mem-estimate train --gpu h200 --dp 4 bard"
answers 2 "mem-estimate: --gpus 4: the layout has 3 ranks a replica" "which the axes must leave" \
    mem-estimate train --tp 3 --gpus 4 bard
answers 2 "mem-estimate: --gpu: is one device, of which --tp 8 shares a model" "inference has one device" \
    mem-estimate infer --gpu 8xh200 bard
answers 2 "mem-estimate: --gpus 4 contradicts --gpu 8xh200" "numbers of devices agree" \
    mem-estimate plan --gpus 4 --gpu 8xh200 bard

# types
run mem-estimate infer bard/config.json
ok "the type stands in the first line" test "$(head -n 1 out)" = "bard/config.json: llama, 2828736 parameters, weights bf16"
grep -v dtype bard/config.json > untyped.json
run mem-estimate train untyped.json
ok "a config without a type is trained in bf16" test "$(head -n 1 out)" = \
    "untyped.json: llama, 2828736 parameters, weights bf16"
out_has "master weights f32" "with f32 states"
run mem-estimate infer untyped.json
ok "and is run in bf16" test "$(head -n 1 out)" = "untyped.json: llama, 2828736 parameters, weights bf16"
run mem-estimate plan --gpu 8xh200 --mode train untyped.json
ok "a plan has it in its first line too" test "$(head -n 1 out)" = \
    "untyped.json: 8 x h200, batch 8, 512 tokens each, weights bf16, products bf16"

# tp-run
answers 2 "tp-run: unexpected operand 'ROMEO:'; text to continue follows --prompt" "a text as operand" \
    tp-run generate bard ROMEO:
answers 2 "tp-run: the texts come first, then the checkpoint: bard/heldout.txt bard" "operands the wrong way round" \
    tp-run score bard bard/heldout.txt
run tp-run logits --ids 1,2,3 -o x.npy bard
status_is 0 "logits go to x.npy"
ok "as NumPy has it" sh -c "head -c 128 x.npy | tr -d '\\000-\\037\\200-\\377' | grep -q \"^NUMPYv{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1024), } *$\""
tp-run logits --ids 1,2,3 -o x.safetensors bard
ok "with the values of safetensors" sh -c 'tail -c 12288 x.npy > one; tail -c 12288 x.safetensors > two; cmp one two'
ok "and no more" test "$(wc -c < x.npy)" = $((128 + 12288))
printf '[1, 2]\n[3, 4]\n' > two.txt
run tp-run logits --input two.txt -o y.npy bard
status_is 2 "one .npy holds one array"
ok "and none is written" test ! -e y.npy
answers 2 "tp-run: --trace: writes many arrays; name it .safetensors" "nor a trace" \
    tp-run logits --ids 1 --trace t.npy bard
answers 3 "tp-run: org/model: no such directory, and nothing is downloaded; 'hf download org/model --local-dir model' \
fetches a model" "a name on the hub is told how it is fetched" tp-run generate -p x org/model
answers 3 "mem-estimate: org/model: no such directory, and nothing is downloaded; 'hf download org/model --local-dir \
model' fetches a model" "by every program" mem-estimate infer org/model
answers 3 "mem-estimate: bard/nothing: no such file or directory" "a file that is missing is not" \
    mem-estimate infer bard/nothing
# README's sweep, beside the sample model
if hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    mkdir -p examples
    cp -r bard examples/bard
    sed -n -e '/^echo/p' -e '/^hpo-sweep/p' "$top_srcdir/README.md" > readme
    ok "README has three lines of a sweep" test "$(wc -l < readme)" = 3
    run sh -e readme
    status_is 0 "which run as they are printed"
    out_has "window=256" "and find the best"
else
    skip "README's sweep runs as it is printed" "built without SQLite or YAML"
fi
printf 'metric:\n  name: x\nparameters:\n  a: {min: 0.0, max: 1.0}\n' > sweep.yaml
run hpo-sweep ask --storage s.db --direction max sweep.yaml
status_is 0 "a direction may be max"
done_testing
