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
run tp-shard merge -q -f --export gguf cut megatron
status_is 0 "an export in one form takes the place of one in another"
ls -A megatron > names
ok "of which nothing stays" test "$(grep -cx 'model.gguf\|common.pt\|.metadata' names)" = 1
touch megatron/mine
run tp-shard merge -q -f --export dcp cut megatron
status_is 2 "but a file of another makes it no export"
err_has "tp-shard: megatron: not replaced: it holds mine, which is not ours" "which is named"

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
cp -r hf nan
# the first number of a matrix whose rows are whole blocks
at=$(grep -ao 'mlp.down_proj[^}]*data_offsets":\[[0-9]*' hf/model.safetensors | sed 's/.*\[//; q')
printf '\300\177' | dd of=nan/model.safetensors bs=1 seek=$((at + 8 + $(od -An -tu4 -N4 hf/model.safetensors))) conv=notrunc status=none
run tp-shard merge -q --export gguf nan nan.gguf.d
status_is 0 "a number that is not finite stays one"
run tp-shard merge -q --export gguf --dtype q8_0 nan never
status_is 1 "but there is no block of it"
err_has "a number is not finite, or too large, which Q8_0 cannot represent" "and that is said"

# ---- an optimizer goes along ----

awk 'BEGIN { for (i = 0; i < 8; i++) { printf "{\"ids\":["
    for (k = 0; k < 12; k++) printf "%s%d", k ? "," : "", 3 + (i * 31 + k * k * 7 + k * 11) % 55
    print "]}" } }' > ids.jsonl
train() {
    tp-run train -q --data ids.jsonl --seq 16 --global-batch 4 --lr 1e-2 --lr-schedule constant --threads 1 --steps 2 --save-every 2 "$@" \
        "$data/models/${model:-llama-groups}"
}
train -o run
state=run/step-000002
for form in dcp megatron-dist deepspeed-universal; do
    run tp-shard merge -q --export $form $state $form.out
    status_is 0 "$form: a training is exported"
    run tp-shard split -q --tp 2 --moments $form.out $form.cut
    status_is 0 "$form: and read with its moments"
    run tp-shard diff $state $form.cut
    status_is 1 "$form: without the masters, which are weights but in Megatron's"
    differ=42
    [ $form = megatron-dist ] && differ=21
    ok "$form: and the 42 moments are those of the training" \
        test "$(tail -n 1 out), moments: $(grep -c exp_avg out)" = "$differ of 84 tensors differ, moments: 0"
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

train --ema 0.9 -o ema
run tp-shard merge --export dcp ema/step-000002 left.average
err_has "ema/step-000002: moving averages of weights are left out; --average exports them" "what is left out is said"
train --optimizer sgd -o sgd
run tp-shard merge --export dcp sgd/step-000002 left.masters
status_is 0 "an optimizer without moments is exported"
err_has "sgd/step-000002: f32 masters of weights are left out" "and that its masters are not"
tp-shard merge -q --average ema/step-000002 average
for form in dcp megatron-dist deepspeed-universal; do
    run tp-shard merge -q --export $form --average ema/step-000002 $form.average
    status_is 0 "$form: averages are exported"
    tp-shard merge -q --dtype f32 $form.average $form.average.hf
    run tp-shard diff average $form.average.hf
    out_is "21 tensors, identical" "$form: and no masters in their places"
    run tp-shard split --tp 2 --moments $form.average never
    status_is 3 "$form: nor any state of the optimizer"
done
while read -r optimizer reason; do
    train --optimizer $optimizer -o $optimizer
    run tp-shard merge --export dcp $optimizer/step-000002 never
    status_is 1 "what $optimizer keeps is not exported"
    err_has "$reason; --weights-only exports without it" "and that is said"
done << 'END'
muon tensor model.layers.0.mlp.down_proj.weight.momentum_buffer: state of an optimizer that is not Adam
adafactor tensor lm_head.weight.exp_avg_sq_row: state of an optimizer that is not Adam
momentum tensor lm_head.weight.momentum_buffer: state of an optimizer that is not Adam
lion tensor lm_head.weight: has exp_avg without exp_avg_sq, as Adam's states are not
END
run tp-shard merge -q --export dcp --weights-only muon/step-000002 muon.dcp
status_is 0 "its weights are"
run tp-shard merge -q --export gguf muon/step-000002 muon.gguf.d
status_is 0 "and a form without states asks for no option"
# what does not decay is the second group: its names are sorted, as those of the first are
while read -r model spared; do
    train -o decay.$model
    tp-shard merge -q --export dcp decay.$model/step-000002 decay.$model.dcp
    LC_ALL=C grep -ao '\(model\|transformer\|lm_head\)[.a-z_0-9]*\(weight\|bias\|alpha_n\|alpha_p\)' decay.$model.dcp/__0_0.distcp |
        LC_ALL=C awk 'second || $1 < last { second = 1; n = split($1, part, "."); print part[n - 1] "." part[n] } { last = $1 }' |
        LC_ALL=C sort -u | paste -s -d ' ' > names
    same_text names "$spared" "$model: what training spares of decay is the group without"
done << 'END'
cohere-normed input_layernorm.weight k_norm.weight k_proj.bias norm.weight o_proj.bias q_norm.weight q_proj.bias v_proj.bias
apertus attention_layernorm.weight feedforward_layernorm.weight k_norm.weight norm.weight q_norm.weight
gpt2-untied c_attn.bias c_fc.bias c_proj.bias ln_1.bias ln_1.weight ln_2.bias ln_2.weight ln_f.bias ln_f.weight
END
model=
train --lora 2 -o lora
run tp-shard merge --export dcp lora/step-000002 never
status_is 2 "an adapter is not exported"
err_is "tp-shard: --export: lora/step-000002 is an adapter: merge it first
Try 'tp-shard merge --help' for more." "but its merge is"

# ---- experts are stacked ----

cp -r "$data/models/mixtral" moe
for form in megatron-dist gguf; do
    run tp-shard merge --export $form moe never
    status_is 1 "$form: a window is not to be said"
    err_has "config.json: sliding_window: " "$form: and its key is named"
done
sed -i 's/"sliding_window": 9/"sliding_window": null/' moe/config.json
run tp-shard merge -q --export megatron-dist moe experts
status_is 0 "experts are exported"
tp-shard merge -q experts experts.hf
run tp-shard diff moe experts.hf
out_has "identical" "and read again"
run tp-shard merge -q --export gguf moe experts.gguf.d
status_is 0 "without one they go there, too"
tp-shard merge -q --dtype bf16 experts.gguf.d experts.hf2
tp-shard split -q --tp 2 moe experts.cut
tp-shard merge -q --dtype bf16 experts.cut experts.hf3
run tp-shard diff experts.hf3 experts.hf2
out_has "identical" "with their values"

# ---- Mistral's names are Llama's ----

cp -r "$data/models/mistral-window" mistral
sed -i 's/"sliding_window": 8/"sliding_window": null/' mistral/config.json
cp -r mistral unsaid
sed -i '/"sliding_window"/d; s/\("max_position_embeddings": \)[0-9]*/\18192/' unsaid/config.json
for form in megatron-dist gguf; do
    run tp-shard merge -q --export $form mistral mistral-$form
    status_is 0 "$form: Mistral is exported"
    tp-shard merge -q --dtype f16 mistral-$form mistral-$form.hf
    run tp-shard diff mistral mistral-$form.hf
    out_has "identical" "$form: and read again"
    run tp-shard merge -q --export $form unsaid never
    status_is 1 "$form: a config that says no window has one of 4096"
    err_has "config.json: sliding_window: " "$form: which is not to be said"
done

# ---- how positions turn ----

cp -r hf turned
positions() {
    sed "0,/\"model_type\"/s/\"model_type\"/\"rope_scaling\": {$1}, &/" hf/config.json > turned/config.json
}
rest='"original_max_position_embeddings": 8192, "low_freq_factor": 1, "high_freq_factor": 4'
while read -r key how; do
    positions "$how"
    run tp-shard merge --export megatron-dist turned never
    status_is 1 "Megatron has no positions $how"
    err_is "tp-shard: turned/config.json: $key: Megatron cannot represent its value" "and $key is named"
done << END
rope_scaling "rope_type": "linear", "factor": 2
rope_scaling "type": "dynamic", "factor": 2
rope_scaling "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16
low_freq_factor "rope_type": "llama3", "factor": 8, $(echo "$rest" | sed 's/1,/2,/')
high_freq_factor "rope_type": "llama3", "factor": 8, $(echo "$rest" | sed 's/4$/8/')
original_max_position_embeddings "rope_type": "llama3", "factor": 8, $(echo "$rest" | sed 's/8192/4096/')
END
positions "\"rope_type\": \"llama3\", \"factor\": 32, $rest"
run tp-shard merge -q --export megatron-dist turned turned.out
status_is 0 "but Llama 3's"
# what is true is 0x88 in a pickle
ok "which its argument says" env LC_ALL=C grep -aq "$(printf 'use_rope_scaling\210')" turned.out/common.pt

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
while read -r kind method; do
    for form in megatron-dist deepspeed-universal gguf; do
        run tp-shard merge --export $form "$data/quantized/$kind" never
        status_is 1 "$form: $kind is no plain weights"
        err_has ": quantized by $method, which $form cannot represent" "$form: which is said"
    done
done << 'END'
awq awq
gptq gptq
ct-w4a16 compressed-tensors
int8 bitsandbytes
mxfp4 mxfp4
fp8 fp8
END
ok "of all of which nothing has the final name" test ! -e never
done_testing
