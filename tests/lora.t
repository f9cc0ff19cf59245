#!/bin/sh
# lora - an adapter is trained beside a frozen model
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors
printf '{"ids":[%s]}\n' 1,2,3,4,5,6,7,8 3,1,4,1,5,9,2,6 > two.jsonl
model=$data/models/llama-gqa

# names FILE - those of its tensors
names() {
    size=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + size)) "$1" | tail -c +9 | grep -o '"base_model[^"]*"' | tr -d '"'
}

# a step of SGD with rate 1 leaves the matrices less their gradients, by PEFT in float64
for name in llama-gqa gpt2-hub neox llama-gqa/dora gpt2-hub/dora neox/dora llama-gqa/saved; do
    dir=$data/adapters/$name
    name=${name%/*}
    for layout in "--tp 1" "--tp 2" "--tp 3" "--pp 2" "--dp 2 --tp 2"; do
        # shellcheck disable=SC2086 # words
        run tp-run train -q -f $layout --adapter "$dir" --optimizer sgd --lr 1 --lr-schedule constant --clip 1e9 \
            --dropout 0 --data two.jsonl --seq 8 --global-batch 2 --steps 1 -o g "$data/models/$name"
        status_is 0 "$name, $layout: an adapter is trained"
        # shellcheck disable=SC2046 # words
        ok "$name, $layout: by PEFT's gradients" "$compare" "$dir/trained.safetensors" \
            g/step-000001/adapter_model.safetensors 1e-5 $(names "$dir/trained.safetensors")
    done
done

# a new one, and its checkpoint
train="tp-run train -q --data two.jsonl --seq 8 --global-batch 1 --lr 1e-2 --lora 4:all-linear --lora-alpha 6 --rslora --lora-dropout 0.2"
run $train --steps 4 --save-every 2 -o run "$model"
status_is 0 "an adapter is trained from nothing"
step=run/step-000004
ok "its directory has PEFT's files and no weight of the model" \
    sh -c 'ls run/step-000004 | tr "\n" " " | grep -qx "adapter_config.json adapter_model.safetensors checkpoint.json rank-tp0-pp0.safetensors "'
ok "its config is PEFT's" grep -q '"target_modules": \["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"\]' $step/adapter_config.json
ok "with the model's path" grep -q "\"base_model_name_or_path\": \".*/llama-gqa\"" $step/adapter_config.json
ok "and is whole" tp-shard verify -q $step
tp-run logits -q --ids 1,2,3 -o run.safetensors run
tp-run logits -q --ids 1,2,3 -o step.safetensors --adapter $step "$model"
tp-run logits -q --ids 1,2,3 -o model.safetensors "$model"
ok "the run is its model with the adapter" cmp run.safetensors step.safetensors
ok "which differs from the model" sh -c '! cmp -s run.safetensors model.safetensors'
cp -r run again
rm -r again/step-000004
run tp-run train -q --resume -o again
ok "a run that is resumed has the same bits" cmp $step/adapter_model.safetensors again/step-000004/adapter_model.safetensors
ok "of the optimizer, too" cmp $step/rank-tp0-pp0.safetensors again/step-000004/rank-tp0-pp0.safetensors
rm -r again/step-000004
run tp-run train -q --resume --tp 3 -o again
status_is 0 "it is resumed on another layout"
# shellcheck disable=SC2046 # words
ok "with the same numbers, whatever dropout took" "$compare" $step/adapter_model.safetensors \
    again/step-000004/adapter_model.safetensors 2e-6 $(names $step/adapter_model.safetensors)
run $train --steps 4 --dp 2 --global-batch 2 --zero 1 -o both "$model"
run $train --steps 4 --global-batch 2 -o one "$model"
ok "replicas that share updates change no bit" cmp one/step-000004/rank-tp0-pp0.safetensors both/step-000004/rank-tp0-pp0.safetensors


# with magnitudes (DoRA), which begin as the norms
dora="tp-run train -q --data two.jsonl --seq 8 --lora 4:all-linear --dora"
run $dora --lr 1e-9 --global-batch 1 --steps 1 -o still "$model"
tp-run logits -q --ids 1,2,3 -o o.safetensors still
ok "new magnitudes change nothing" "$compare" model.safetensors o.safetensors 1e-5 logits
run $dora --lr 1e-2 --lora-dropout 0.1 --global-batch 1 --steps 2 --save-every 1 -o dora "$model"
tp-run logits -q --ids 1,2,3 -o o.safetensors dora
tp-shard merge -q -f dora sum
tp-run logits -q --ids 1,2,3 -o sum.safetensors sum
ok "a run with magnitudes is what it is merged" "$compare" sum.safetensors o.safetensors 1e-5 logits
cp -r dora again.dora
rm -r again.dora/step-000002
tp-run train -q --resume -o again.dora
for file in adapter_model rank-tp0-pp0; do
    ok "and is resumed with the same bits of $file" cmp dora/step-000002/$file.safetensors again.dora/step-000002/$file.safetensors
done
for layout in "--zero 1" "--zero 2" "--zero 3"; do
    # shellcheck disable=SC2086 # words
    run $dora -f --lr 1e-2 --dp 2 --global-batch 2 --steps 2 $layout -o shared "$model"
    mv shared/step-000002/adapter_model.safetensors "shared${layout#* }"
done
ok "replicas share them" sh -c 'cmp shared1 shared2 && cmp shared2 shared3'
# dropout takes another way, on which W reads what A reads: of a rate that drops nothing the same gradients
cp -r "$data/adapters/llama-gqa/dora" nearly && chmod -R u+w nearly
sed -i 's/"lora_dropout": 0.0/"lora_dropout": 1e-12/' nearly/adapter_config.json
for layout in "--tp 1" "--tp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q -f $layout --adapter nearly --optimizer sgd --lr 1 --lr-schedule constant --clip 1e9 \
        --dropout 0 --data two.jsonl --seq 8 --global-batch 2 --steps 1 -o g "$model"
    # shellcheck disable=SC2046 # words
    ok "$layout: also on the way that dropout takes" "$compare" nearly/trained.safetensors g/step-000001/adapter_model.safetensors 1e-5 \
        $(names nearly/trained.safetensors)
done

# modules that are trained whole (modules_to_save)
run tp-run train -q --data two.jsonl --seq 8 --lora 4 --modules-to-save lm_head,norm,embed_tokens --tp 2 --global-batch 2 --lr 1e-2 --steps 2 \
    --save-every 1 -o saved "$model"
status_is 0 "modules are trained with an adapter"
ok "which names them as PEFT does" grep -q '"modules_to_save": \["lm_head", "norm", "embed_tokens"\]' saved/step-000002/adapter_config.json
names saved/step-000002/adapter_model.safetensors | grep -v lora | sort > got
cat > want << 'END'
base_model.model.lm_head.weight
base_model.model.model.embed_tokens.weight
base_model.model.model.layers.0.input_layernorm.weight
base_model.model.model.layers.0.post_attention_layernorm.weight
base_model.model.model.layers.1.input_layernorm.weight
base_model.model.model.layers.1.post_attention_layernorm.weight
base_model.model.model.norm.weight
END
ok "and has their tensors" cmp want got
tp-run logits -q --ids 1,2,3 -o o.safetensors saved
tp-shard merge -q -f saved sum
tp-run logits -q --ids 1,2,3 -o sum.safetensors sum
ok "the run is what it is merged" "$compare" sum.safetensors o.safetensors 1e-5 logits
cp -r saved again.saved
rm -r again.saved/step-000002
tp-run train -q --resume --tp 2 -o again.saved
for file in adapter_model rank-tp0-pp0; do
    ok "and is resumed with the same bits of $file" cmp saved/step-000002/$file.safetensors again.saved/step-000002/$file.safetensors
done

tp-shard split -q -f --tp 2 "$model" cut
for layout in "--tp 2" "--tp 3"; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q -f --data two.jsonl --seq 8 --lora 4 --modules-to-save lm_head,norm,embed_tokens $layout --global-batch 2 --lr 1e-2 \
        --steps 2 -o beside cut
    status_is 0 "$layout: also beside shards"
    # shellcheck disable=SC2046 # words
    ok "$layout: with the same numbers" "$compare" saved/step-000002/adapter_model.safetensors beside/step-000002/adapter_model.safetensors \
        1e-5 $(cat want)
    # shellcheck disable=SC2086 # words
    tp-run logits -q --ids 1,2,3 $layout -o o.safetensors beside
    ok "$layout: which stand in place of the model's again" "$compare" sum.safetensors o.safetensors 1e-5 logits
done
# the head of a classifier is one of them
tp-shard split -q -f --tp 2 "$data/heads/qwen2-score" cut.class
printf '{"ids":[1,2,3,4],"label":1}\n{"ids":[3,4,5],"label":0}\n' > labels.jsonl
for of in "$data/heads/qwen2-score" cut.class; do
    run tp-run train -q -f --data labels.jsonl --loss class --seq 8 --tp 2 --global-batch 2 --steps 2 --lr 1e-2 --lora 4 \
        -o "${of##*/}.run" "$of"
    status_is 0 "a classifier is trained with an adapter: ${of##*/}"
done
ok "sharded or not" cmp qwen2-score.run/step-000002/adapter_model.safetensors cut.class.run/step-000002/adapter_model.safetensors

# mem-estimate knows what a rank has
for layout in "--tp 1" "--tp 3" "--pp 2"; do
    # shellcheck disable=SC2086 # words
    tp-run train --data two.jsonl --seq 8 --global-batch 2 --steps 1 --threads 1 --save-every 0 --json --lora 4 $layout "$model" > out
    # shellcheck disable=SC2086 # words
    mem-estimate train --framework tp-run --runtime 0 --seq 8 --micro-batch 1 --global-batch 2 $layout --lora 4 --schedule 1f1b --json \
        "$model" > estimate
    ok "mem-estimate foretells the bytes of $layout" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
        "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
done

while read -r name what; do
    for layout in "--tp 1" "--tp 3" "--pp 2"; do
        case $layout$what in "--tp 3"*int4*) continue ;; esac # it would divide a block
        # shellcheck disable=SC2086 # words
        tp-run train --data two.jsonl --seq 8 --global-batch 2 --steps 1 --threads 1 --save-every 0 --json $what $layout "$data/models/$name" > out
        # shellcheck disable=SC2086 # words
        mem-estimate train --framework tp-run --runtime 0 --seq 8 --micro-batch 1 --global-batch 2 $layout $what \
            --schedule 1f1b --json "$data/models/$name" > estimate
        ok "mem-estimate foretells the bytes of $name $what $layout" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
            "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
    done
done << 'END'
llama-gqa --lora 4 --dora
gpt-oss --lora 4:q_proj,experts.gate_up_proj
llama-gqa --lora 4 --modules-to-save lm_head,norm,embed_tokens
mixtral --lora 2:w1,w2,w3
llama-gqa --lora 4 --weights int8
llama-gqa --lora 4 --weights int4
llama-gqa --freeze embed_tokens,q_proj
llama-gqa --train-only v_proj,norm
neox --lora 4 --weights int8
gpt-oss-mxfp4 --lora 4 --weights codes
END
# of classifiers, too, whose heads are trained with it and whose configs have dropout; of two stacks the source is as long as --seq
printf '{"ids":[%s],"label":1}\n' 1,2,3,4,5,6,7,8,9,10,11,12 > class.jsonl
while read -r name what; do
    # shellcheck disable=SC2086 # words
    tp-run train --data class.jsonl --loss class --seq 12 --global-batch 1 --steps 1 --threads 1 --save-every 0 --json $what "$data/$name" > out
    # shellcheck disable=SC2086 # words
    mem-estimate train --framework tp-run --runtime 0 --seq 12 --micro-batch 1 --global-batch 1 --dropout $what --schedule 1f1b --json \
        "$data/$name" > estimate
    ok "mem-estimate foretells the bytes of $name $what" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
        "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
done << 'END'
models/bert-classify
models/roberta-classify --lora 4 --tp 2
heads/bart-score --pp 2
heads/bart-score --lora 4 --tp 2
heads/t5-score --lora 4
END
run tp-run train -n --data two.jsonl --seq 8 --global-batch 2 --steps 1 --lora 4 "$model"
ok "a dry run tells what is trained" grep -q "weights a rank, [0-9]* trained; .* for these, gradients and optimizer" out

# the model is known again
cp -r "$model" other
printf X | dd of=other/model.safetensors bs=1 seek=50000 conv=notrunc 2> dd.err
run tp-run logits -q --ids 1 -o o.safetensors --base other run
status_is 3 "another model is refused"
err_has "was trained beside another model than other: model.safetensors has another content" "by what differs"
tp-shard split -q --tp 2 "$model" cut
run tp-run logits -q --ids 1,2,3 -o cut.safetensors --base cut run
ok "its shards are the same model" "$compare" run.safetensors cut.safetensors 1e-5 logits
mv again/step-000004 moved
sed -i 's|"base_model_name_or_path": ".*"|"base_model_name_or_path": "/nowhere/else"|' moved/adapter_config.json
run tp-run logits -q --ids 1 -o o.safetensors moved
status_is 3 "a model that is not there is asked for"
err_is "tp-run: moved: an adapter of /nowhere/else, which is not here: give its model with --base" "by its name"
run tp-run logits -q --ids 1 -o o.safetensors --base "$model" "$model"
status_is 2 "--base is for adapters"
run tp-shard reshard -q --tp 2 $step merged
status_is 3 "an adapter alone is no model"
err_has "it needs its base, model.safetensors" "which is told"

# it is added to the weights
for name in llama-gqa gpt2-hub neox; do
    dir=$data/adapters/$name
    for from in "$data/models/$name" cut; do
        rm -rf sum cut
        tp-shard split -q --tp 2 "$data/models/$name" cut
        run tp-shard merge -q --dtype f32 --adapter "$dir" $from sum
        status_is 0 "$name: an adapter is merged"
        tp-run logits -q --ids 1,2,3,4,5,6,7 -o o.safetensors sum
        ok "$name: the weights are those of PEFT" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
    done
done
run tp-shard merge -q run sum2
status_is 0 "a run is merged with its model"
ok "an adapter is no part of it" sh -c '! ls sum2 | grep adapter'
tp-run logits -q --ids 1,2,3 -o o.safetensors sum2
ok "and answers as the run" "$compare" run.safetensors o.safetensors 2e-5 logits
tp-shard diff "$model" sum2 > diff.out
ok "what has changed are the adapted matrices" sh -c 'test $(grep -c "_proj.weight: .* elements differ" diff.out) -eq 14 && ! grep -e norm -e embed diff.out'
run tp-shard merge -q --dtype f32 --adapter "$data/adapters/llama-gqa" --adapter "$data/adapters/llama-gqa/other@0.5" "$model" sum5
status_is 0 "several are merged"
tp-run logits -q --ids 1,2,3,4,5,6,7 -o o.safetensors sum5
ok "by their weights" "$compare" "$data/adapters/llama-gqa/other/summed.safetensors" o.safetensors 1e-5 logits
tp-shard split -q --tp 2 --dtype int8 "$model" codes
run tp-shard merge -q --adapter $step codes sum3
status_is 2 "the sum of codes needs a type"
err_has "give the type of the sum (--dtype)" "which is told"
run tp-shard merge -q --adapter $step --dtype bf16 codes sum3
status_is 3 "and codes of the model are another model"
rm $step/checkpoint.json
run tp-shard merge -q --adapter $step --dtype bf16 codes sum3
status_is 0 "unless the adapter names none"
tp-run logits -q --ids 1,2,3 -o o.safetensors sum3
ok "the codes are rounded, the adapter is not" "$compare" run.safetensors o.safetensors 0.05 logits
run tp-shard merge -q --adapter $step --base "$model" "$model" sum4
status_is 2 "--base is for an adapter that is given as the checkpoint"

# the model may be codes
sgd="tp-run train -q -f --optimizer sgd --lr 1 --lr-schedule constant --clip 1e9 --dropout 0 --data two.jsonl --seq 8 --global-batch 2 --steps 1"
for name in llama-gqa gpt2-hub; do
    dir=$data/adapters/$name
    tp-shard split -q -f --tp 1 --dtype int8 "$data/models/$name" codes
    tp-shard merge -q -f --dtype f32 codes wide
    $sgd --adapter "$dir" -o wide.run wide
    for layout in "--tp 1" "--tp 2" "--pp 2"; do
        # shellcheck disable=SC2086 # words
        run $sgd $layout --weights int8 --adapter "$dir" -o codes.run "$data/models/$name"
        status_is 0 "$name, $layout: an adapter is trained beside codes"
        # shellcheck disable=SC2046 # words
        ok "$name, $layout: by the gradients of the model that they are" "$compare" wide.run/step-000001/adapter_model.safetensors \
            codes.run/step-000001/adapter_model.safetensors 2e-5 $(names "$dir/trained.safetensors")
    done
done
# of a checkpoint, too; FP8 by a config of f32, which rounds nothing when it is unpacked
for kind in fp8 ct-fp8 ct-mxfp4; do
    rm -rf coded
    cp -R "$data/packed/$kind" coded && chmod -R u+w coded
    sed -i 's/"\(torch_\)*dtype": "[a-z]*[0-9]*"/"dtype": "float32"/' coded/config.json
    $sgd --lora 2 -o wide.run coded
    for layout in "--tp 1" "--tp 2"; do
        # shellcheck disable=SC2086 # words
        run $sgd $layout --weights codes --lora 2 -o codes.run coded
        # shellcheck disable=SC2046 # words
        ok "$kind, $layout: an adapter is trained beside the codes of a checkpoint" "$compare" wide.run/step-000001/adapter_model.safetensors \
            codes.run/step-000001/adapter_model.safetensors 2e-5 $(names wide.run/step-000001/adapter_model.safetensors)
    done
done
run $sgd --weights int8 --tp 2 --deterministic --lora 2 -o codes.run "$model"
status_is 2 "whose sums depend on tp"

# each expert may have one; what PEFT makes of the checkpoint is what tests/oracle/check-adapter.py compares
experts="tp-run train -q -f --optimizer sgd --lr 1 --lr-schedule constant --clip 1e9 --dropout 0 --balance-loss 0 --data two.jsonl --seq 8 --global-batch 2 --steps 2"
for layout in "--tp 1" "--tp 2" "--tp 3" "--pp 2" "--dp 2" "--ep 2" "--mesh tp=2,ep=2"; do
    # shellcheck disable=SC2086 # words
    run $experts $layout --lora 2:w1,w2,w3 -o "experts$layout" "$data/models/mixtral"
    # shellcheck disable=SC2046 # words
    ok "experts, $layout: have adapters of their own" "$compare" "experts--tp 1/step-000002/adapter_model.safetensors" \
        "experts$layout/step-000002/adapter_model.safetensors" 1e-5 $(names "experts--tp 1/step-000002/adapter_model.safetensors")
done
ok "of each matrix" test "$(names "experts--tp 1/step-000002/adapter_model.safetensors" | wc -w)" -eq 60
for what in --dora "--lora-dropout 0.1"; do
    # shellcheck disable=SC2086 # words
    run $experts $what --lora 2:w1,w2,w3 -o never "$data/models/mixtral"
    status_is 1 "experts: without $what"
    err_has "an adapter of experts has neither DoRA nor dropout" "which is told"
done
run $experts --adapter "$data/adapters/mixtral" -o never "$data/models/mixtral"
status_is 1 "experts: matrices that they share are not trained"
err_has "lora_A.weight: matrices that several of an expert share (target_parameters) are not trained on" "which is told"

# experts that lie in one tensor: a step leaves PEFT's two matrices for all of them less their gradients, by PEFT in float64
step1=$(echo "$experts" | sed 's/--steps 2/--steps 1/')
while read -r name layout; do
    want=$data/adapters/$name/trained.safetensors
    # shellcheck disable=SC2086 # words
    run $step1 $layout --adapter "$data/adapters/$name" -o g "$data/models/$name"
    # shellcheck disable=SC2046 # words
    ok "$name, $layout: experts in one tensor are trained by PEFT's gradients" "$compare" "$want" \
        g/step-000001/adapter_model.safetensors 1e-5 $(names "$want")
done << 'END'
gpt-oss --mesh tp=2,ep=2
llama4 --tp 3
llama4 --dp 2 --zero 3
granitemoe --pp 2
END
# new ones: names and sizes are PEFT's, a layer's second parameter is around the first
run $experts --tp 2 --save-every 1 --lora 2:q_proj,experts.gate_up_proj,experts.down_proj -o stack "$data/models/llama4"
status_is 0 "new adapters of experts in one tensor are trained"
# header FILE - its tensors' names and shapes
header() {
    size=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + size)) "$1" | tail -c +9 | grep -o '"base_model[^"]*":{"dtype":"F32","shape":[^]]*' | sort
}
header stack/step-000002/adapter_model.safetensors > got
header "$data/adapters/llama4/adapter_model.safetensors" > want
ok "and saved as PEFT does" cmp want got
ok "which its config says" grep -q '"target_parameters": \["experts.gate_up_proj", "experts.down_proj"\]' \
    stack/step-000002/adapter_config.json
ok "apart from modules" grep -q '"target_modules": \["q_proj"\]' stack/step-000002/adapter_config.json
cp -r stack again.stack
rm -r again.stack/step-000002
run tp-run train -q --resume --tp 2 -o again.stack
for file in adapter_model rank-tp0-pp0; do
    ok "they are resumed with the same bits of $file" cmp stack/step-000002/$file.safetensors \
        again.stack/step-000002/$file.safetensors
done
tp-run logits -q --ids 1,2,3 -o o.safetensors stack
tp-shard merge -q -f --dtype f32 stack sum
tp-run logits -q --ids 1,2,3 -o sum.safetensors sum
ok "the run is what it is merged" "$compare" sum.safetensors o.safetensors 1e-5 logits
tp-run logits -q --ids 1,2,3 -o model4.safetensors "$data/models/llama4"
ok "which differs from the model" sh -c '! cmp -s model4.safetensors o.safetensors'
for what in --dora "--lora-dropout 0.1"; do
    # shellcheck disable=SC2086 # words
    run $step1 $what --lora 2:experts.down_proj -o never "$data/models/llama4"
    status_is 1 "experts in one tensor: without $what, as PEFT"
    err_has "an adapter of experts has neither DoRA nor dropout" "which is told"
done
run $step1 --lora 2:down_proj -o never "$data/models/granitemoe"
status_is 2 "a parameter needs its module's name, too"
err_has "down_proj: all experts of a layer lie in one tensor, model.layers.1.block_sparse_moe.experts.down_proj: give the end" "which is told"
run $step1 --lora 2:rel_attn.q -o never "$data/encoders/xlnet"
status_is 2 "a matrix of three axes is not that of experts"
err_has "rel_attn.q" "which is told"

# what is trained can be named
for want in "train-only q_proj" "freeze embed_tokens,lm_head,layers.0,norm,k_proj,v_proj,o_proj,mlp,input_layernorm,post_attention_layernorm"; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q -f --data two.jsonl --seq 8 --global-batch 1 --steps 1 --lr 1e-2 --$want -o part "$model"
    tp-shard diff "$model" part > diff.out
    ok "--$want: nothing else has changed" sh -c 'grep "layers" diff.out && ! grep "layers" diff.out | grep -v q_proj'
done
while read -r want what; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q -f --data two.jsonl --seq 8 --steps 1 $what -o never "$model"
    status_is 2 "refused: $what"
    err_has "$(printf '%s' "$want" | tr _ ' ')" "with the reason"
done << 'END'
no_module_called_'nothing' --lora 8:nothing
cannot_have_an_adapter --lora 8:embed_tokens
expected_a_rank --lora x
give_--lora_as_well --lora-alpha 3
an_adapter_alone_is_trained --lora 8 --freeze norm
no_tensor_called_'nothing' --freeze nothing
one_of_them --freeze norm --train-only norm
needs_a_model_that_has_been_trained --lora 8 --init
give_--lora_as_well --modules-to-save norm
no_module_called_'nothing' --lora 8 --modules-to-save nothing
has_an_adapter --lora 8 --modules-to-save q_proj
END
for what in "--lora 4" "--lora-alpha 3" "--dora"; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q --data two.jsonl --seq 8 --steps 1 --adapter "$data/adapters/llama-gqa" $what -o never "$model"
    status_is 2 "refused beside --adapter: $what"
    err_has "${what% *}: the adapter that is given keeps its own" "with the reason"
done
done_testing
