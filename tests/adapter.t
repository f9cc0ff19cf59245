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

# several: their sum, or one for each text
other=$dir/other
for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run logits $layout --adapter "$dir" --adapter "$other@0.5" --ids $ids -o o.safetensors "$model"
    ok "$layout: adapters are summed, by their weights, as PEFT does" "$compare" "$other/summed.safetensors" o.safetensors 1e-5 logits
done
long=$ids,$(seq -s , 8 40)
for one in one two none; do
    case $one in one) set -- --adapter "$dir" ;; two) set -- --adapter "$other" ;; none) set -- ;; esac
    tp-run score -q --json "$@" --ids-file - "$model" << END | grep -o '"nll":[0-9.]*' > $one.nll
$ids
END
    tp-run generate -q --json --max-tokens 9 "$@" --ids "$long" "$model" | grep -o '"ids":.*]' > $one.ids
    shift $#
done
for one in one two none one two; do
    chosen='"'$one'"'
    [ $one != none ] || chosen=null
    printf '{"ids":[%s],"adapter":%s}\n' $ids $chosen >> mixed.jsonl
    printf '{"ids":[%s],"adapter":%s}\n' "$long" $chosen >> long.jsonl
    cat $one.nll >> want.nll
    cat $one.ids >> want.ids
done
for layout in "--tp 1" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words
    tp-run score -q --json $layout --adapter one="$dir" --adapter two="$other" --input mixed.jsonl "$model" |
        grep -o '"nll":[0-9.]*' > got.nll
    ok "$layout: each text has the score of the adapter that it chooses" cmp want.nll got.nll
    # shellcheck disable=SC2086 # words
    tp-run generate -q --json --max-tokens 9 $layout --adapter one="$dir" --adapter two="$other" --input long.jsonl "$model" |
        grep -o '"ids":.*]' > got.ids
    ok "$layout: and goes on as alone, sharing no row of another's" cmp want.ids got.ids
done
run tp-run score --json --adapter one="$dir" --adapter one="$other@0.5" --tp 2 --input mixed.jsonl "$model"
status_is 3 "a text that names no adapter is refused"
err_has "mixed.jsonl:2: no adapter is called 'two' (--adapter)" "with its place"
tp-run score -q --json --adapter "$dir" --adapter "$other@0.5" --ids-file - "$model" << END | grep -o '"nll":[0-9.]*' > sum.nll
$ids
END
head -n 1 mixed.jsonl > one.jsonl
tp-run score -q --json --adapter one="$dir" --adapter one="$other@0.5" --input one.jsonl "$model" | grep -o '"nll":[0-9.]*' > got.nll
ok "adapters of one name are summed, too" cmp sum.nll got.nll
run tp-run chat --adapter one="$dir" "$model"
status_is 2 "a chat chooses none"
run tp-run train --adapter "$dir" --adapter "$other" --data mixed.jsonl -o never "$model"
status_is 2 "one is trained"
run tp-run logits --adapter "$dir@x" --ids $ids -o o.safetensors "$model"
status_is 2 "a weight is a number"
err_has "'x' is no weight: expected [NAME=]DIR[@WEIGHT]" "which is told"

# experts: all of a layer in two pairs of matrices
for layout in "--ep 2" "--mesh tp=2,ep=2"; do
    # shellcheck disable=SC2086 # words
    tp-run logits $layout --adapter "$data/adapters/mixtral" --ids $ids -o o.safetensors "$data/models/mixtral"
    ok "experts, $layout: have their parts of PEFT's matrices" "$compare" "$data/adapters/mixtral/expected.safetensors" o.safetensors 1e-5 logits
done
for name in gpt-oss llama4 granitemoe; do # in one tensor
    tp-run logits -q --tp 2 --ep 2 --adapter "$data/adapters/$name" --ids $ids -o o.safetensors "$data/models/$name"
    ok "experts of $name: have their slices" "$compare" "$data/adapters/$name/expected.safetensors" o.safetensors 1e-5 logits
done
for name in mixtral gpt-oss llama4 granitemoe; do
    tp-shard merge -q -f --dtype f32 --adapter "$data/adapters/$name" "$data/models/$name" merged
    tp-run logits -q --ids $ids -o o.safetensors merged
    ok "$name: and are merged" "$compare" "$data/adapters/$name/expected.safetensors" o.safetensors 1e-5 logits
done
printf '{"ids":[%s],"adapter":"e"}\n' $ids > expert.jsonl
run tp-run score --adapter e="$data/adapters/mixtral" --input expert.jsonl "$data/models/mixtral"
status_is 1 "no text chooses them"
err_has "for which no text chooses an adapter: give this one without a name" "which is told"
cp -r "$data/adapters/mixtral" apart && chmod -R u+w apart
run tp-run logits --adapter apart --ids $ids -o o.safetensors "$data/models/gpt-oss"
status_is 1 "experts of another model are refused"
err_has "adapts experts (target_parameters) that are not this model's, or of other shapes" "by name"

# tensors in place of the model's (modules_to_save)
saved=$dir/saved
for layout in "--tp 1" "--tp 2" "--pp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run logits $layout --adapter "$saved" --ids $ids -o o.safetensors "$model"
    ok "$layout: norms of the adapter's own are the model's, as PEFT has them" "$compare" "$saved/expected.safetensors" o.safetensors 1e-5 logits
done
for from in "$model" llama-gqa.2; do
    run tp-shard merge -q -f --adapter "$saved" $from merged
    tp-run logits -q --ids $ids -o o.safetensors merged
    ok "and are merged" "$compare" "$saved/expected.safetensors" o.safetensors 1e-5 logits
done
for kind in dora:DoRA table:embedding; do
    run tp-shard merge -q -f --adapter "$dir/${kind%:*}" "$model" merged
    tp-run logits -q --ids $ids -o o.safetensors merged
    ok "${kind#*:}: merged, the logits are PEFT's" "$compare" "$dir/${kind%:*}/expected.safetensors" o.safetensors 1e-5 logits
done
run tp-run logits --adapter "$dir/table" --ids $ids -o o.safetensors "$model"
status_is 1 "an adapter of an embedding is not applied beside the model"
err_has "an embedding is not applied beside the model: tp-shard merge --adapter makes a model of both" "with the way out"

# magnitudes (DoRA), of all texts or of those that choose them
for name in llama-gqa gpt2-hub neox; do
    for layout in "--tp 1" "--tp 2" "--tp 3" "--pp 2"; do
        # shellcheck disable=SC2086 # words
        run tp-run logits $layout --adapter "$data/adapters/$name/dora" --ids $ids -o o.safetensors "$data/models/$name"
        ok "$name, $layout: outputs are divided by the norms of their sums" "$compare" "$data/adapters/$name/dora/expected.safetensors" \
            o.safetensors 1e-5 logits
    done
done
printf '{"ids":[%s],"adapter":"%s"}\n' $ids d $ids one > dora.jsonl
for name in d one; do
    set -- --adapter "$dir"
    [ $name = one ] || set -- --adapter "$dir/dora"
    printf '%s\n' $ids | tp-run score -q --json "$@" --ids-file - "$model" | grep -o '"nll":[0-9.]*'
done > want.nll
tp-run score -q --json --tp 2 --adapter d="$dir/dora" --adapter one="$dir" --input dora.jsonl "$model" | grep -o '"nll":[0-9.]*' > got.nll
ok "a text may choose them" sh -c 'paste want.nll got.nll | tr ":" " " | awk "{ d = \$2 - \$4; if (d * d > 1e-10) exit 1 } END { exit NR != 2 }"'
run tp-run logits --adapter a="$dir/dora" --adapter a="$dir" --ids $ids -o o.safetensors "$model"
status_is 1 "but no sum of them with another of the same name"
err_has "shares its name with no other of the module" "which is told"
tp-shard split -q -f --tp 1 --dtype int8 "$model" codes
tp-shard merge -q -f --dtype f32 codes wide
tp-run logits --adapter "$dir/dora" --ids $ids -o wide.safetensors wide
for layout in "--tp 1" "--tp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run logits --weights int8 $layout --adapter "$dir/dora" --ids $ids -o o.safetensors "$model"
    ok "$layout: the norms are those of the codes" "$compare" wide.safetensors o.safetensors 1e-4 logits
done
run tp-shard merge -q -f --adapter "$dir/dora" llama-gqa.2 merged
status_is 1 "DoRA is not merged with shards"
err_has "down_proj.weight: DoRA needs the norms of a weight that is neither sharded nor quantized: merge it first" "which is told"
run tp-run logits --adapter "$saved" --ids $ids -o o.safetensors llama-gqa.2
ok "also beside shards" "$compare" "$saved/expected.safetensors" o.safetensors 1e-5 logits
run tp-run logits --adapter one="$saved" --ids $ids -o o.safetensors "$model"
status_is 1 "nor for some texts"
err_has "for all texts: give the adapter without a name and a weight" "which is told"
# what is not read is refused by its name
# changed SED - the adapter with another config
changed() {
    rm -rf changed
    cp -r "$dir" changed
    sed "$1" "$dir/adapter_config.json" > changed/adapter_config.json
    run tp-run logits --adapter changed --ids $ids -o o.safetensors "$model"
}
while read -r want said edit; do
    changed "$edit"
    status_is "$want" "refused: $edit"
    err_has "$(printf '%s' "$said" | tr _ ' ')" "by its name"
done << 'END'
1 use:dora s/"use_dora": false/"use:dora": true/
3 an_adapter's_config s/"peft_type"/"other"/
1 bias: s/"bias": "none"/"bias": "all"/
1 modules s/"modules_to_save": null/"modules": ["lm_head"]/
1 init s/"init_lora_weights": true/"init": "pissa"/
1 peft s/"LORA"/"IA3"/
1 only_names_are_read s/"o_proj": 5/"o.*proj": 5/
3 lora s/"lora_alpha": 8/"lora_alpha": "8"/
3 1e300_of_model. s/"lora_alpha": 8/"lora_alpha": 1e300/
3 config.json:34:8:_r_is_5,_but_tensor_base s/"r": 4/"r": 5/
3 A.weight_has_rank_4 s/"r": 4/"r": 5/
3 r_of_model.layers.0.mlp.down s/"r": 4/"r": "4"/
3 r_of_model.layers.0.mlp.down s/"r": 4/"r": null/
3 pattern_is_4,_but_tensor s/"o_proj": 3/"o_proj": 4/
3 pattern_of_model.layers.0.self s/"o_proj": 3/"o_proj": true/
3 r_is_4,_but_tensor s/"o_proj": 3/"other": 3/
3 rslora_is_neither s/"use_rslora": false/"use_rslora": 1/
3 rslora_is_neither s/"use_rslora": false/"use_rslora": "true"/
END
for edit in 's/"r": 4,//' 's/"use_rslora": false/"use_rslora": null/' 's/"o_proj": 3/"o_p.*": 3/'; do
    changed "$edit"
    ok "not refused: $edit" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
done
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

# damage TENSOR BYTE BYTES - the adapter with BYTES (octal) at BYTE of TENSOR
damage() {
    rm -rf changed
    cp -r "$dir" changed && chmod -R u+w changed
    size=$(od -An -tu8 -N8 changed/adapter_model.safetensors | tr -d ' ')
    at=$(head -c $((8 + size)) changed/adapter_model.safetensors | tail -c +9 |
        sed "s/.*\"base_model.model.model.$1\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    # shellcheck disable=SC2059 # octal
    printf "$3" | dd of=changed/adapter_model.safetensors bs=1 seek=$((8 + size + at + $2)) conv=notrunc 2> dd.err
}
damage layers.1.self_attn.q_proj.lora_B.weight $(((30 * 4 + 2) * 4)) '\0\0\300\177'
cause="tensor base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight: NaN at [30, 2]"
for layout in "--tp 1" "--tp 2" "--pp 2"; do
    # shellcheck disable=SC2086 # words
    run tp-run logits $layout --adapter changed --ids $ids -o o.safetensors "$model"
    status_is 3 "$layout: NaN in a matrix is refused"
    err_is "tp-run: changed/adapter_model.safetensors: $cause" "with file, tensor and place"
done
damage layers.0.mlp.down_proj.lora_A.weight $(((80 + 79) * 4)) '\0\0\200\377'
run tp-run generate --max-tokens 2 --adapter changed --ids $ids "$model"
status_is 3 "so is infinity"
err_has "layers.0.mlp.down_proj.lora_A.weight: infinity at [1, 79]" "with the place"

# written HEADER BYTES - an adapter with that header, of at most 1000 bytes, and BYTES zeros
written() {
    { printf '\350\3\0\0\0\0\0\0%-1000s' "$1" && head -c "$2" /dev/zero; } > changed/adapter_model.safetensors
    run tp-run logits --adapter changed --ids $ids -o o.safetensors "$model"
}
# pair PREFIX AT - the two matrices of a module, from byte AT
pair() {
    name=base_model.model.$1layers.0.self_attn.q_proj
    printf '"%s.lora_A.weight":{"dtype":"F32","shape":[4,32],"data_offsets":[%d,%d]},' "$name" "$2" $(($2 + 512))
    printf '"%s.lora_B.weight":{"dtype":"F32","shape":[32,4],"data_offsets":[%d,%d]}' "$name" $(($2 + 512)) $(($2 + 1024))
}
written "{}" 0
status_is 3 "a file without matrices is no adapter"
err_is "tp-run: changed/adapter_model.safetensors: no lora_A: an adapter without matrices" "which is told"
written "{$(pair '' 0)}" 1024
status_is 0 "a module's prefix may be left out"
# half TYPE - the two matrices and the magnitudes of a module, of TYPE, whose numbers have 2 bytes, or 8
half() {
    name=base_model.model.model.layers.0.self_attn.q_proj
    printf '"%s.lora_A.weight":{"dtype":"F16","shape":[4,32],"data_offsets":[0,256]},' "$name"
    printf '"%s.lora_B.weight":{"dtype":"F16","shape":[32,4],"data_offsets":[256,512]},' "$name"
    printf '"%s.lora_magnitude_vector":{"dtype":"%s","shape":[%s],"data_offsets":[512,%s]}' "$name" "$1" "$2" "$3"
}
written "{$(half F16 32 576)}" 576
status_is 0 "an adapter may be in f16, its magnitudes, too"
written "{$(half BF16 32 576)}" 576
status_is 0 "or in bf16"
# a model whose first output of that module is 0, to which the adapter adds 0
cp -r "$model" zeros && chmod -R u+w zeros
size=$(od -An -tu8 -N8 zeros/model.safetensors | tr -d ' ')
at=$(head -c $((8 + size)) zeros/model.safetensors | tail -c +9 |
    sed 's/.*"model.layers.0.self_attn.q_proj.weight":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
dd if=/dev/zero of=zeros/model.safetensors bs=1 seek=$((8 + size + at)) count=128 conv=notrunc 2> dd.err
run tp-run logits --adapter changed --ids $ids -o o.safetensors zeros
status_is 3 "an output of zeros has no direction"
err_has "q_proj.weight inverse norms: output 0 has a norm of 0, by which DoRA cannot divide" "which is told"
run tp-shard merge -q -f --adapter changed zeros merged
status_is 3 "nor is it merged"
err_has "q_proj.weight: output 0 has a norm of 0, by which DoRA cannot divide" "which is told"
written "{$(half F64 32 768)}" 768
status_is 3 "but not in f64"
err_has "lora_magnitude_vector is not [32] f32" "which is told"
written "{$(half F16 31 574)}" 574
status_is 3 "nor are there fewer magnitudes than outputs"
written "{$(pair model. 0),$(pair '' 1024)}" 2048
status_is 3 "but a module is not named twice"
err_has "layers.0.self_attn.q_proj.lora_A.weight are of one module" "and the tensors are named"

# beside the model
cp -r "$model" beside
cp "$dir"/adapter_* beside
run tp-run logits --ids $ids -o o.safetensors beside
err_is "tp-run: beside/adapter_config.json: the adapter beside the model is applied; --ignore-adapter runs the model without it" \
    "an adapter beside the model is applied, which is told"
ok "as PEFT does" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits
run tp-run logits --adapter beside --ids $ids -o o.safetensors beside
ok "once, if it is asked for" "$compare" "$dir/expected.safetensors" o.safetensors 1e-5 logits

# a magnitude, and the names by which texts choose, which --resume compares
(dir=$dir/dora && damage layers.0.mlp.down_proj.lora_magnitude_vector 4 '\0\0\300\177')
run tp-shard merge -q -f --adapter changed "$model" merged
status_is 3 "NaN in a magnitude is refused"
err_has "lora_magnitude_vector: NaN at [1]" "with the place"
printf '%s\n' '{"ids":[1,2,3],"adapter":"a"}' > chosen
both="--adapter a=$dir --adapter b=$other"
# shellcheck disable=SC2086 # words
run tp-run generate -q --max-tokens 2 --input chosen --output answers.jsonl $both "$model"
status_is 0 "answers are written"
# shellcheck disable=SC2086 # words
run tp-run generate -q --max-tokens 2 --input chosen --output answers.jsonl --resume $both "$model"
status_is 0 "and continued"
run tp-run generate -q --max-tokens 2 --input chosen --output answers.jsonl --resume --adapter "b=$dir" --adapter "a=$other" "$model"
ok "but not with the names changed round" test "$status" -ne 0
done_testing
