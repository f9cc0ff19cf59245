#!/bin/sh
# adapter - a LoRA adapter answers as PEFT does, on every layout
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors
ids=1,2,3,4,5,6,7

for dir in "$data"/adapters/*/; do
    dir=${dir%/}
    name=${dir##*/}
    model=$data/models/$name
    for layout in "--tp 1" "--tp 2" "--tp 3" "--pp 2" "--tp 2 --pp 2" "--sp 2"; do
        # shellcheck disable=SC2086 # words
        run tp-run logits $layout --adapter "$dir" --ids $ids -o o.safetensors "$model"
        status_is 0 "$name, $layout: an adapter is applied"
        ok "$name, $layout: the logits are PEFT's" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
    done
    tp-shard split -q --tp 2 "$model" "$name.2"
    tp-run logits -q --adapter "$dir" --ids $ids -o o.safetensors "$name.2"
    ok "$name: nor does it matter that the model was sharded" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
done

model=$data/models/llama-gqa
dir=$data/adapters/llama-gqa
tp-run generate -q --ids $ids --max-tokens 8 --json "$model" > plain
tp-run generate -q --ids $ids --max-tokens 8 --json --adapter "$dir" "$model" > got
ok "a text is generated with it" sh -c '! cmp -s plain got'
for layout in "--tp 2" "--pp 2" "--threads 2"; do
    # shellcheck disable=SC2086 # words
    tp-run generate -q $layout --ids $ids --max-tokens 8 --json --adapter "$dir" "$model" > other
    ok "the same with $layout" sh -c 'sed "s/.*\"ids\"/ids/;s/\].*//" got > a; sed "s/.*\"ids\"/ids/;s/\].*//" other > b; cmp a b'
done
run tp-run logits --weights int8 --adapter "$dir" --ids $ids -o o.safetensors "$model"
status_is 0 "weights may be codes"
ok "while the adapter is as it is stored" "$compare" "$dir/expected.safetensors" o.safetensors 0.05 logits
run tp-run logits --deterministic --adapter "$dir" --ids $ids -o o.safetensors "$model"
status_is 0 "--deterministic takes one rank"
run tp-run logits --tp 2 --deterministic --adapter "$dir" --ids $ids -o o.safetensors "$model"
status_is 1 "but no sum over ranks that no tree fixes"
err_has "that no tree fixes" "which is told"

# what is not read is refused by its name
# changed SED - the adapter with another config
changed() {
    rm -rf changed
    cp -r "$dir" changed
    sed "$1" "$dir/adapter_config.json" > changed/adapter_config.json
    run tp-run logits --adapter changed --ids $ids -o o.safetensors "$model"
}
while read -r status said edit; do
    changed "$edit"
    status_is "$status" "refused: $edit"
    err_has "$(printf '%s' "$said" | tr _ ' ')" "by its name"
done << 'END'
1 use:dora s/"use_dora": false/"use:dora": true/
1 bias: s/"bias": "none"/"bias": "all"/
1 modules s/"modules_to_save": null/"modules": ["lm_head"]/
1 init s/"init_lora_weights": true/"init": "pissa"/
1 peft s/"LORA"/"IA3"/
1 only_names_are_read s/"o_proj": 5/"o.*proj": 5/
3 lora s/"lora_alpha": 8/"lora_alpha": "8"/
END
changed 's/"o_proj": 5/"o_proj": 6/'
status_is 0 "another alpha of a module is read"
ok "and counts" sh -c '! "$1" "$2" o.safetensors 1e-5 logits > /dev/null' sh "$compare" "$dir/expected.safetensors"
run tp-run logits --adapter "$dir" --ids $ids -o o.safetensors "$data/models/gpt2-hub"
status_is 3 "an adapter of another model is refused"
err_has "the model has no such module" "with the cause"
run tp-run logits --adapter "$data/adapters/gpt2-hub" --ids $ids -o o.safetensors "$data/models/gpt2-awkward"
status_is 3 "and one of other sizes"
err_has "is not [" "which names the tensor"
run tp-run logits --adapter "$model" --ids $ids -o o.safetensors "$model"
status_is 3 "a directory without one is told"
err_has "adapter_config.json" "by the file that it lacks"

# beside the model
cp -r "$model" beside
cp "$dir"/adapter_* beside
run tp-run logits --ids $ids -o o.safetensors beside
status_is 3 "an adapter beside the model is not applied unasked"
err_has "not applied unasked" "with the cause"
run tp-run logits --adapter beside --ids $ids -o o.safetensors beside
ok "asked, it is" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
done_testing
