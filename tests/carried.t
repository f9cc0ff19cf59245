#!/bin/sh
# carried - what lies beside the weights of a model: carried by split and merge, left by name, or refused
. "${top_srcdir:?}/tests/lib.sh"
model=$data/models/llama-gqa

# as hugging face's hub has them
mkdir m
cp "$model/config.json" "$model/generation_config.json" "$model/model.safetensors" m
chmod u+w m/*
mkdir m/1_Pooling m/2_Dense m/assets m/onnx m/checkpoint-5 m/.cache m/deep m/deep/er
for name in LICENSE README.md modeling_own.py vocab.bpe merges.dat special.jinja 1_Pooling/config.json \
    2_Dense/config.json 2_Dense/model.safetensors assets/logo.png deep/note; do
    echo "$name" > "m/$name"
done
chmod 640 m/LICENSE
ln -s ../assets/logo.png m/1_Pooling/linked.png
for name in pytorch_model.bin tf_model.h5 consolidated.00.pth onnx/model.onnx checkpoint-5/model.safetensors deep/er/x \
    .gitattributes .cache/x; do
    echo "$name" > "m/$name"
done
mkfifo m/pipe
ln -s nowhere m/broken
ln -s .. m/parent
printf x > "m/$(printf 'line\nfeed')"
cp -r m want
rm -r want/pytorch_model.bin want/tf_model.h5 want/consolidated.00.pth want/onnx want/checkpoint-5 want/deep/er \
    want/.gitattributes want/.cache want/pipe want/broken want/parent want/line*
rm want/1_Pooling/linked.png
cp m/assets/logo.png want/1_Pooling/linked.png

run tp-shard split --tp 2 m cut
status_is 0 "a directory with other files is split"
err_has 'tp-shard: m: not carried: broken, checkpoint-5/, consolidated.00.pth, deep/er, line\nfeed, onnx/model.onnx, parent, pipe and 2 more' \
    "what is not carried is listed in one line"
err_lines 2 "and nothing else is said"
run tp-shard reshard -q --tp 3 cut again
err_empty "-q says nothing"
run tp-shard merge -q again merged
status_is 0 "it is merged by way of another layout"
ok "with all that is not weights" diff -r want merged
ok "modes included" test "$(stat -c %a merged/LICENSE)" = 640
run tp-shard verify again
status_is 0 "verify knows the files"
printf x >> again/LICENSE
run tp-shard verify again
status_is 1 "and finds a change of them"
out_has "LICENSE" "by name"
truncate -s 268435457 m/large.dat # one byte more than is carried
run tp-shard split -f --tp 2 m cut
err_has "large.dat" "a file beyond the limit is left by name"
ok "and not written" test ! -e cut/large.dat
rm m/large.dat

# an adapter, which transformers applies
echo '{"peft_type": "LORA", "r": 4}' > m/adapter_config.json
head -c 3000 /dev/urandom > m/adapter_model.safetensors
run tp-shard split -q -f --tp 2 m cut
status_is 0 "a model with an adapter is split"
run tp-shard merge -q -f cut merged
ok "and merged with its adapter" cmp m/adapter_config.json merged/adapter_config.json
ok "whole" cmp m/adapter_model.safetensors merged/adapter_model.safetensors
for what in m cut; do
    refused="tp-run: $what/adapter_model.safetensors: "
    for command in "generate --ids 1" "score --ids-file ids" "logits --ids 1 -o l" "embed --ids 1" "bench" \
        "train --data ids.jsonl --steps 1 -o run"; do
        echo 1,2 > ids
        echo '{"ids":[1,2,3]}' > ids.jsonl
        run tp-run $command $what
        case $command in
        train*)
            status_is 2 "$command asks whether $what with an adapter trains it"
            err_has "tp-run: $what/adapter_config.json: an adapter of this model: --adapter $what trains it, --ignore-adapter passes it over" \
                "and names both options"
            ;;
        *)
            status_is 3 "$command reads $what with its adapter, which is none"
            err_has "$refused" "and names the file"
            ;;
        esac
    done
    run tp-run generate --ignore-adapter --ids 5,6,7 --max-tokens 3 $what
    status_is 0 "--ignore-adapter runs $what"
    cp out without
    tp-run generate --ids 5,6,7 --max-tokens 3 "$model" > with
    ok "as the model alone" cmp with without
done
run tp-run train -q --ignore-adapter --data ids.jsonl --seq 2 --steps 1 -o run m
status_is 0 "and trains it"

# two sets of weights: the single file wins
rm m/adapter*
echo '{"weight_map":{"lm_head.weight":"model-00001-of-00002.safetensors"}}' > m/model.safetensors.index.json
said="m/model.safetensors.index.json: names other weights than m/model.safetensors, which is read"
run tp-run generate --ids 5,6,7 --max-tokens 3 m
status_is 0 "a single file beside an index of others is read"
err_is "tp-run: $said" "with a warning"
ok "as it is alone" cmp out with
run tp-shard plan --tp 2 m
err_is "tp-shard: $said" "tp-shard warns, too"
echo '{"weight_map":{"lm_head.weight":"model.safetensors"}}' > m/model.safetensors.index.json
run tp-run generate --ids 5,6,7 --max-tokens 3 m
err_empty "an index of the single file is no other"

done_testing
