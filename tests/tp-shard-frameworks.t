#!/bin/sh
# tp-shard-frameworks - checkpoints are written in the forms of Megatron, DeepSpeed and GGUF, with an optimizer, and come back the same
. "${top_srcdir:?}/tests/lib.sh"
cp -r "$data/chat" hf # tied, bf16, with a template
echo MIT > hf/LICENSE

# ---- a chain of forms loses nothing ----

tp-shard split -q --mesh tp=3,pp=2 hf cut
run tp-shard merge -q --export megatron-dist cut megatron
status_is 0 "ranks are exported to Megatron"
tp-shard merge -q megatron one
run tp-shard merge -q --export dcp one dcp
status_is 0 "and from there to torch.distributed.checkpoint"
tp-shard merge -q dcp two
run tp-shard merge -q --export gguf two gguf
status_is 0 "and from there to GGUF"
run tp-shard merge -q --dtype bf16 gguf three
status_is 0 "and back from its directory"
run tp-shard diff hf three
out_is "20 tensors, identical" "every bit is there"
for file in tokenizer.json tokenizer_config.json chat_template.jinja LICENSE config.json generation_config.json; do
    ok "and so is $file" cmp hf/$file three/$file
done
ok "but nothing that described other weights" test ! -e three/metadata.json
ls megatron > names
ok "Megatron's has metadata.json" grep -qx metadata.json names
ok "and what ranks have in common" grep -qx common.pt names
run tp-shard merge -q --dtype bf16 gguf/model.gguf alone
status_is 0 "the GGUF file alone is a model"
run tp-shard diff hf alone
out_is "20 tensors, identical" "of the same weights"
text='To be, or not to be; and 1234 <|im_start|>user'
tp-run tokens --tokenizer hf -p "$text" > want
tp-run tokens --tokenizer alone -p "$text" > got
ok "whose tokenizer cuts a text alike" cmp want got
run tp-shard merge --export megatron-dist cut megatron
status_is 2 "an output that is there is not touched"
run tp-shard merge -q -f --export megatron-dist cut megatron
status_is 0 "but with -f when it is our own"
run tp-shard merge -n --export gguf cut never
status_is 0 "and -n writes nothing"
ok "at all" test ! -e never

# ---- what the frameworks were seen to load, by tests/oracle/check-{dcp-optimizer,megatron,deepspeed,gguf}.py ----

sums() {
    for file; do
        cksum < "$file"
    done > sums
}
for type in f32 f16 bf16 q8_0; do
    tp-shard merge -q --export gguf --dtype $type "$bard" bard.$type
done
sums bard.*/model.gguf
same_text sums "1897337421 5692576
3392058822 5692576
461937457 11345056
632766872 3042976" "GGUF files are those that gguf's reader and llama.cpp read"

# ---- an optimizer goes along ----

awk 'BEGIN { for (i = 0; i < 8; i++) { printf "{\"ids\":["
    for (k = 0; k < 12; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 55
    print "]}" } }' > ids.jsonl
tp-run train -q --data ids.jsonl --seq 16 --global-batch 4 --lr 1e-2 --lr-schedule constant --threads 1 --steps 2 --save-every 2 -o run \
    "$data/models/llama-groups"
state=run/step-000002
for form in dcp megatron-dist deepspeed-universal; do
    run tp-shard merge -q --export $form $state $form.out
    status_is 0 "$form: a training is exported"
    run tp-shard split -q --tp 2 --moments $form.out $form.cut
    status_is 0 "$form: and read with its moments"
    tp-shard diff $state $form.cut > differences
    ok "$form: which are those of the training" sh -c '! grep "exp_avg" differences'
    tp-shard merge -q -f --export $form --weights-only $state $form.out
    run tp-shard split --tp 2 --moments $form.out never
    status_is 3 "$form: --weights-only leaves them"
    err_has "no moments of an optimizer" "$form: which is said"
    run tp-shard merge -q --dtype bf16 $form.out $form.hf
    status_is 0 "$form: weights alone are read"
done
tp-shard merge -q $state plain
for form in dcp megatron-dist deepspeed-universal; do
    run tp-shard diff plain $form.hf
    out_is "21 tensors, identical" "$form: and are those of the training"
done

# ---- experts are stacked ----

run tp-shard merge -q --export megatron-dist "$data/models/mixtral" experts
status_is 0 "experts are exported"
tp-shard merge -q experts experts.hf
run tp-shard diff "$data/models/mixtral" experts.hf
out_has "identical" "and read again"
cp -r "$data/models/mixtral" moe
run tp-shard merge --export gguf moe never
status_is 1 "their window is not to be said in GGUF"
sed -i 's/"sliding_window": 9/"sliding_window": null/' moe/config.json
run tp-shard merge -q --export gguf moe experts.gguf.d
status_is 0 "without one they go there, too"
tp-shard merge -q --dtype bf16 experts.gguf.d experts.hf2
tp-shard split -q --tp 2 moe experts.cut
tp-shard merge -q --dtype bf16 experts.cut experts.hf3
run tp-shard diff experts.hf3 experts.hf2
out_has "identical" "with their values"

# ---- what a form cannot say is refused ----

run tp-shard merge --export megatron-dist "$data/models/bloom" never
status_is 1 "a family that Megatron's names are not known of"
err_has "family bloom has no names in a checkpoint of megatron" "is refused"
run tp-shard merge --export gguf "$data/models/bloom" never
status_is 1 "and one that GGUF's are not"
run tp-shard merge --export dcp --dtype q8_0 hf never
status_is 2 "blocks are GGUF's alone"
err_is "tp-shard: --dtype q8_0: with --export gguf
Try 'tp-shard merge --help' for more." "and that is said"
run tp-shard merge --export gguf hf never.gguf
status_is 2 "the output is a directory"
run tp-shard merge --weights-only hf never
status_is 2 "--weights-only without --export"
cp -r hf odd
sed -i 's/"add_prefix_space": *false/"add_prefix_space": true/' odd/tokenizer.json
run tp-shard merge --export gguf odd never
status_is 1 "a tokenizer that GGUF cannot represent"
err_is "tp-shard: odd/tokenizer.json: how its pre_tokenizer cuts a text: GGUF cannot represent it" "is refused with the reason"
sed 's/"model_type": "llama"/"model_type": "llama", "sliding_window": 16/' hf/config.json > odd/config.json
cp hf/tokenizer.json odd
run tp-shard merge --export gguf odd never
status_is 1 "and so is a config"
err_has "config.json: sliding_window: GGUF cannot represent its value of a model llama" "with the key"
ok "of all of which nothing has the final name" test ! -e never
done_testing
