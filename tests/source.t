#!/bin/sh
# source.t - what is read as a model's directory, or as a file of tensors, and what is not
. "${top_srcdir:?}/tests/lib.sh"
pickles=$data/pickles
index=m/pytorch_model.bin.index.json

# copy DIR - as m, to be changed
copy() {
    rm -rf m
    cp -R "$1" m
    chmod -R u+w m
}

# refused STATUS MESSAGE NAME - m is, and nothing is written
refused() {
    run tp-shard split -q --tp 1 m m.out
    status_is "$1" "$3"
    err_is "tp-shard: $2" "$3: it is told"
    ok "$3: nothing is written" test ! -e m.out
}

# safetensors HEADER - a file with it and four bytes
safetensors() {
    printf "$(printf '\\%03o\\%03o' $((${#1} % 256)) $((${#1} / 256)))\0\0\0\0\0\0%s" "$1"
    printf 'abcd'
}

# files of torch.save, by name or by their first bytes
for form in types types-legacy; do
    tp-shard show "$pickles/$form.pt" > want
    for name in weights.bin weights.pth weights; do
        cp "$pickles/$form.pt" "$name"
        run tp-shard show "$name"
        ok "$form.pt is read as $name" cmp want out
    done
done
while read -r bytes message; do
    # shellcheck disable=SC2059 # octal
    printf "$bytes" > weights
    run tp-shard show weights
    status_is 3 "a file that begins with $bytes is refused"
    err_is "tp-shard: weights: $message" "and it is said as what"
done << 'END'
PKxx not a file of torch.save
\200\002.. not a file of torch.save
\200 too short for a safetensors file
\200\001\0\0\0\0\0\0 truncated: a header of 384 bytes in a file of 8
\200\006\0\0\0\0\0\0 truncated: a header of 1664 bytes in a file of 8
P\003\0\0\0\0\0\0 truncated: a header of 848 bytes in a file of 8
END

# tensors in the order of their bytes
safetensors '{"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},"e":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"d":{"dtype":"U8","shape":[0,5],"data_offsets":[2,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' > o.safetensors
run tp-shard show o.safetensors
ok "tensors are told in the order of their bytes, empty ones first" \
    test "$(sed -n 's/ *U8.*//p' out | tr -d '\n')" = adeb

# an index that does not tell the truth
copy "$pickles/model-shards"
cp "$index" good
sed 's/"weight_map": *{/&"nobody.weight": "pytorch_model-00001-of-00002.bin",/' good > "$index"
refused 3 "$index:5:34: tensor 'nobody.weight' is not in 'pytorch_model-00001-of-00002.bin'" "a tensor that no file has"
sed '0,/00001-of-00002.bin/s//00002-of-00002.bin/' good > "$index"
refused 3 "$index:6:21: tensor 'lm_head.weight' is not in 'pytorch_model-00002-of-00002.bin'" "a tensor in another file"
sed 's/00002-of-00002.bin/00003-of-00002.bin/' good > "$index"
refused 3 "m/pytorch_model-00003-of-00002.bin: missing" "a file that is missing"
echo '{"weight_map":' > "$index"
refused 3 "$index:2:1: unexpected end" "an index that ends early"
cp good "$index"
cp m/pytorch_model-00001-of-00002.bin m/pytorch_model-00002-of-00002.bin
refused 3 "m: tensor 'lm_head.weight' is in two files" "a file that was copied over another"
rm "$index"
refused 3 "m: tensor 'lm_head.weight' is in two files" "shards without an index are read by their names"
mkdir "$index"
refused 3 "$index: not a regular file" "an index that is a directory"
mv m/config.json m/other.json
refused 3 "$index: not a regular file" "a model without a config"
mkdir m/config.json
refused 3 "m/config.json: not a regular file" "a config that is a directory"

# small files: what belongs to a model is kept
copy "$pickles/model"
cp m/config.json m/.hidden.json
ln -s nowhere m/broken.json
ln -s config.json/x m/through.txt
mkdir m/dir.json m/1_Pooling m/2_Dense m/3x m/_x
truncate -s 257M m/big.txt
echo '{}' | tee m/1_Pooling/config.json > m/3x/config.json
echo hi > m/notes.txt
run tp-shard split -q --tp 1 m kept
status_is 0 "a directory with much besides a model is cut"
ok "what is hidden, broken, large or no file is left out" \
    test "$(find kept -type f | sort | tr '\n' ' ')" = \
    "kept/1_Pooling/config.json kept/3x/config.json kept/checkpoint.json kept/config.json kept/notes.txt kept/rank-tp0-pp0.safetensors "
ln -s loop.json m/loop.json
refused 4 "m/loop.json: Too many levels of symbolic links" "a small file that cannot be read"

# a directory without weights, to begin training
rm -rf m
mkdir m
echo '{"ids":[1,2,3,4,5,6]}' > ids.jsonl
begin() {
    run tp-run train -q --init --seq 4 --steps 1 --data ids.jsonl -o begun m
}
begin
status_is 3 "weights are not drawn without a config"
err_is "tp-run: m/config.json: missing" "which is told"
mkdir m/config.json
begin
status_is 3 "nor of a config that is a directory"
err_is "tp-run: m/config.json: not a regular file" "which is told"
rmdir m/config.json
cp "$data/models/llama-gqa/config.json" m
begin
status_is 0 "of a config they are"
ok "and are saved" tp-shard verify -q begun/step-000001
done_testing
