#!/bin/sh
# audit - tp-shard audit tells what is wrong with a directory, before anything runs
. "${top_srcdir:?}/tests/lib.sh"

# fresh: m is a model of four shards with a tokenizer of its size
fresh() {
    rm -rf m
    cp -r "$data/models/llama-sharded" m && chmod -R u+w m
    rm m/expected.*
    printf '{"model":{"type":"WordLevel","vocab":{"a":0,"b":119}},"added_tokens":[]}' > m/tokenizer.json
}

# fill FILE TENSOR BYTE...: FILE's numbers of TENSOR, all of two bytes, become BYTE BYTE (octal)
fill() {
    size=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    head -c $((8 + size)) "$1" | tail -c +9 |
        sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/" > place
    read -r from end < place
    # shellcheck disable=SC2059 # octal
    while [ "$from" -lt "$end" ]; do printf "$3"; from=$((from + 2)); done > numbers
    read -r from end < place
    dd if=numbers of="$1" bs=1 seek=$((8 + size + from)) conv=notrunc 2> dd.err
}

# one FINDING NAME: audit of m has just this error, status 1, and the same by JSON
one() {
    run tp-shard audit -q m
    status_is 1 "$2"
    out_is "$1" "and it is the only error"
    err_empty "on standard output"
}

fresh
run tp-shard audit m
status_is 0 "a directory without faults"
out_is "0 errors, 0 warnings, 0 notes: 4 weight files, 30 tensors, 120.08 KiB read" "has no findings"
run tp-shard audit --json m
out_is '{"type":"summary","files":4,"tensors":30,"bytes":122960,"errors":0,"warnings":0,"notes":0}' "in JSON"
run tp-shard audit --headers m
out_is "0 errors, 0 warnings, 0 notes: 4 weight files, 30 tensors, 0 B read" "--headers reads no weights"
run tp-shard audit -q m
ok "-q is silent about a sound directory" test ! -s out

# ---- values ----
fill m/model-00002-of-00004.safetensors model.layers.0.mlp.down_proj.weight '\300\177'
one "error: model-00002-of-00004.safetensors: model.layers.0.mlp.down_proj.weight: 3600 of 3600 numbers are NaN" \
    "NaN"
run tp-shard audit --json m
out_has '{"type":"finding","severity":"error","file":"model-00002-of-00004.safetensors","tensor":"model.layers.0.mlp.down_proj.weight","others":0,"finding":"3600 of 3600 numbers are NaN"}' \
    "JSON lines have severity, file, tensor and finding"
out_has '"errors":1,"warnings":0,"notes":0}' "and the last one counts"
run tp-shard audit --headers m
status_is 0 "--headers cannot see it"
fill m/model-00002-of-00004.safetensors model.layers.0.mlp.down_proj.weight '\200\377'
one "error: model-00002-of-00004.safetensors: model.layers.0.mlp.down_proj.weight: 3600 of 3600 numbers are infinite" \
    "infinities"
fill m/model-00002-of-00004.safetensors model.layers.0.mlp.down_proj.weight '\000\200'
run tp-shard audit m
status_is 0 "zeros may be meant"
out_has "warning: model-00002-of-00004.safetensors: model.layers.0.mlp.down_proj.weight: all zero" "but are named"
for layer in 0 1 2; do
    for f in m/model-0000*; do
        if grep -aq "model.layers.$layer.input_layernorm.weight\"" "$f"; then
            fill "$f" "model.layers.$layer.input_layernorm.weight" '\100\100'
        fi
    done
done
run tp-shard audit m
out_has "layernorm.weight: every number is 3 (and of its kind 2 more)" "a constant, once for all layers"
for threads in 1 2 7; do
    tp-shard audit -j "$threads" m > "by$threads"
done
ok "the findings do not depend on the threads" cmp by1 by7
ok "nor their order" cmp by1 by2

# ---- index, shards and headers ----
fresh
rm m/model-00003-of-00004.safetensors
one "error: model-00003-of-00004.safetensors: no such file or directory" "a shard that is missing"
fresh
cp m/model-00002-of-00004.safetensors m/model-00003-of-00004.safetensors
run tp-shard audit -q m
status_is 1 "a shard in another's place"
out_has "model.layers.2.self_attn.q_proj.weight: is not in model-00003-of-00004.safetensors, nor in another file" \
    "whose tensors are named"
out_has "model-00003-of-00004.safetensors: model.layers.0.mlp.down_proj.weight: is also in model-00002-of-00004.safetensors" \
    "with those that are there twice"
fresh
truncate -s -2 m/model-00004-of-00004.safetensors
run tp-shard audit -q m
status_is 1 "a shard that is cut short"
out_has "error: model-00004-of-00004.safetensors: " "is named"
fresh
cp m/model-00004-of-00004.safetensors m/model-00004-of-00005.safetensors
run tp-shard audit m
status_is 0 "a stray shard is a warning"
out_has "warning: model-00004-of-00005.safetensors: a stray shard" "with its name"
fresh
sed 's/"lm_head.weight": "model-00004/"lm_head.weight": "model-00001/' m/model.safetensors.index.json > i
mv i m/model.safetensors.index.json
one "error: model.safetensors.index.json: lm_head.weight: is in model-00004-of-00004.safetensors, not in model-00001-of-00004.safetensors" \
    "an index that names another file"
fresh
grep -v lm_head m/model.safetensors.index.json > i
mv i m/model.safetensors.index.json
run tp-shard audit m
out_has "lm_head.weight: is not named in model.safetensors.index.json" "an index that leaves out a tensor"
fresh
cp m/model-00004-of-00004.safetensors m/model-00005-of-00005.safetensors
sed 's/"model.norm.weight": "model-00004-of-00004/"model.norm.weight": "model-00005-of-00005/' \
    m/model.safetensors.index.json > i
mv i m/model.safetensors.index.json
run tp-shard audit -q m
status_is 1 "a tensor in two files"
out_has "lm_head.weight: is also in " "is named"
fresh
printf '{"weight_map":' > m/model.safetensors.index.json
run tp-shard audit -q m
out_has "error: model.safetensors.index.json: " "an index that is no JSON"
fresh
cp "$data/models/llama-gqa/model.safetensors" m
run tp-shard audit m
out_has "warning: model.safetensors.index.json: an index beside model.safetensors, which is read" \
    "an index beside a single file"

# ---- names, shapes and ids ----
fresh
sed 's/"num_hidden_layers": 3/"num_hidden_layers": 4/' m/config.json > c && mv c m/config.json
run tp-shard audit -q m
status_is 1 "a layer that the config has and the files lack"
out_has "error: config.json: model.layers.3.self_attn.q_proj.weight: is missing, which family llama needs" "is named"
ok "with all its tensors" test "$(wc -l < out)" = 9
fresh
sed 's/"intermediate_size": 90/"intermediate_size": 91/' m/config.json > c && mv c m/config.json
run tp-shard audit -q m
out_has "model.layers.0.mlp.down_proj.weight: shape [40, 90], but family llama expects [hidden = 40, ffn = 91] (and of its kind 2 more)" \
    "shapes that the config does not give"
fresh
sed 's/"num_hidden_layers": 3/"num_hidden_layers": 2/' m/config.json > c && mv c m/config.json
run tp-shard audit -q m
out_has "model.layers.2.self_attn.q_proj.weight: its layer is 2, but the config has 2 layers" "tensors beyond the config"
fresh
printf '{"model":{"type":"WordLevel","vocab":{"a":0,"b":120}},"added_tokens":[]}' > m/tokenizer.json
one 'error: tokenizer.json: "b" has the id 120, but the embedding has 120 rows' "an id without a row"
printf '{"model":{"vocab":{"a":0}},"added_tokens":[{"id":120,"content":"x"},{"id":121,"content":"y"}]}' > m/tokenizer.json
one 'error: tokenizer.json: 2 ids up to 121 ("id"), but the embedding has 120 rows' "added tokens without rows"
fresh
sed 's/"eos_token_id": 119/"eos_token_id": [3, 500]/' m/config.json > c && mv c m/config.json
one 'error: config.json: "eos_token_id" has the id 500, but the embedding has 120 rows' "a list in the config"
fresh
rm m/tokenizer.json
run tp-shard audit m
out_has "warning: tokenizer.json: missing, and no other tokenizer is there" "no tokenizer"
fresh
sed 's/"dtype": "bfloat16"/"dtype": "float16"/' m/config.json > c && mv c m/config.json
run tp-shard audit m
out_has "note: config.json: names the type F16, but most weights are stored as BF16" "another type than the config's"
fresh
sed 's/"model_type": "llama"/"model_type": "no-such"/' m/config.json > c && mv c m/config.json
run tp-shard audit m
status_is 0 "a family that is not known"
out_has "note: config.json: names, shapes and ids are not compared" "leaves the rest unchecked, and says so"
rm m/config.json
one "error: config.json: missing" "no config"

# ---- ties ----
rm -rf m
cp -r "$data/models/llama-gqa" m && chmod -R u+w m
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' m/config.json > c && mv c m/config.json
one "error: config.json: ties tensors, but lm_head.weight and model.embed_tokens.weight are both stored, and differ" \
    "tied tensors that differ"

# ---- what lies beside ----
fresh
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' > m/model-00004-of-00004.safetensors
run tp-shard audit -q m
status_is 1 "a pointer of git LFS"
out_has "error: model-00004-of-00004.safetensors: a pointer of git LFS, not the file ('git lfs pull' fetches it)" "is named"
fresh
: > m/tokenizer.json
run tp-shard audit -q m
out_has "error: tokenizer.json: empty" "an empty file"
fresh
cp "$data/pickles/refused-system.pt" m/extra.pt
run tp-shard audit -q m
status_is 1 "a pickle that runs a command"
out_has "error: extra.pt: a pickle that names " "is named with the function"
cp "$data/pickles/refused-module.pt" m/extra.pt
run tp-shard audit m
out_has "extra.pt: a pickle that names " "and one that names a class of some module"
rm m/extra.pt
printf '{"base_model_name_or_path":"a/b"}' > m/adapter_config.json
one "error: adapter_config.json: an adapter of a/b lies beside the weights: some loaders apply it, others do not" \
    "an adapter beside the weights"
rm m/adapter_config.json
: > m/modeling_x.py
sed 's/"model_type"/"auto_map": {"AutoModel": "modeling_x.X"}, "model_type"/' m/config.json > c && mv c m/config.json
mkdir m/sub
: > m/sub/part.incomplete
ln -s nowhere m/lost
cp m/model-00001-of-00004.safetensors m/other.safetensors
run tp-shard audit m
status_is 1 "what lies around"
out_has "warning: modeling_x.py: code, which loaders that trust it run" "code"
out_has "warning: config.json: auto_map names code, which loaders that trust it run" "and who names it"
out_has "warning: sub/part.incomplete: left by a download or a write that did not end" "half a download"
out_has "error: lost: a link that leads nowhere" "a link of a cache that was cleaned"
out_has "note: other.safetensors: weights or state that are not read" "other weights"

# ---- other forms, and those who ask wrongly ----
fresh
tp-shard split -q --tp 2 m cut
run tp-shard audit cut
status_is 0 "a sharded checkpoint"
out_has "0 errors, 0 warnings, 0 notes: 2 weight files" "has its rank files read"
fill cut/rank-tp1-pp0.safetensors lm_head.weight '\300\177'
run tp-shard audit -q cut
status_is 1 "with a NaN"
out_is "error: rank-tp1-pp0.safetensors: lm_head.weight: 2400 of 2400 numbers are NaN" "in one of them"
rm cut/rank-tp1-pp0.safetensors
run tp-shard audit -q cut
status_is 1 "or one of them missing"
run tp-shard audit "$data/models/llama-gqa/model.safetensors"
status_is 0 "a single file"
out_has "0 errors, 0 warnings, 0 notes: 1 weight file" "is read"
mkdir empty
run tp-shard audit -q empty
status_is 1 "an empty directory"
out_has "no model.safetensors, no pytorch_model.bin" "has no weights"
run tp-shard audit no-such
status_is 3 "what is not there"
err_is "tp-shard: no-such: no such file or directory" "is bad input"
run tp-shard audit
status_is 2 "no operand"
run tp-shard audit -j 0 m
status_is 2 "no thread"
tp-shard audit m > /dev/full 2> err
ok "a full standard output is an error" test $? = 4
done_testing
