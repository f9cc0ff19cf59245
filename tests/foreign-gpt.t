#!/bin/sh
# foreign-gpt - checkpoints of nanoGPT and llm.c are read as GPT-2
. "${top_srcdir:?}/tests/lib.sh"
gzip -dc "$data/nanogpt.tar.gz" | tar xf - || exit 99
cd nanogpt || exit 99

# sums DIR - the checksums of a merge's tensors, without its files
sums() {
    tp-shard sum "$1" | cut -f 1,2,4 | grep '"' | LC_ALL=C sort -k 3
}

# keys FILE - a config's keys, one a line
keys() {
    tr -d ' \n{}' < "$1" | sed 's/"dtype"/"torch_dtype"/' | tr , '\n' | LC_ALL=C sort
}

for form in bias plain untied f32.bin bf16.bin; do
    kind=${form%.bin}
    run tp-shard merge $form merged
    status_is 0 "$form: a checkpoint is merged"
    if [ $kind = plain ]; then
        err_has "tp-shard: plain: has no biases; those that GPT-2 has become zeros" "zeros are told"
    fi
    sums merged > got
    ok "every tensor has the bytes that transformers stores" cmp $kind.sums got
    keys $kind.json > want
    keys merged/config.json | LC_ALL=C comm -23 - want > got
    ok "and every key of the config its value" test ! -s got
    tp-shard split -q --tp 2 $form cut 2> /dev/null
    tp-shard merge -q cut again
    ok "split reads it, too" cmp merged/model.safetensors again/model.safetensors
    run tp-shard verify $form
    status_is 0 "and verify"
    run tp-shard audit $form
    status_is 0 "and audit, which misses no config.json"
    ok "nor says that what it reads is not read" sh -c "! grep -q 'not read' out"
    rm -rf merged cut again
done

# nanoGPT's optimizer knows matrices and vectors, each by number
run tp-shard split -q --tp 2 --moments plain cut
status_is 0 "moments are split with their weights"
run tp-shard diff cut plain-moments.safetensors
status_is 0 "transposed like them, and zeros for the zeros"
rm -rf cut
run tp-shard split -q --tp 2 --moments f32.bin cut
status_is 3 "llm.c has them in other files"
err_is "tp-shard: f32.bin: no moments of an optimizer" "which are not read"

run pp-partition plan --pp 2 f32.bin
status_is 0 "a file of llm.c is a model, not a config"
out_has '    1     0       1-1      1 ' "and its stages are planned"

# put FILE WORD BYTES: over what follows WORD in a pickle
put() {
    at=$(grep -abo "$2" "$1" | head -n 1 | cut -d : -f 1)
    # shellcheck disable=SC2059 # octal
    printf "$3" | dd of="$1" bs=1 seek=$((at + ${#2})) conv=notrunc status=none
}
cp -r bias other
put other/ckpt.pt dropou X
run tp-shard merge other merged
status_is 3 "arguments of a fork"
err_is "tp-shard: other/ckpt.pt: model_args say dropouX, which nanoGPT does not know; --config of tp-shard names the model's config.json" "are no config"
run tp-shard merge --config bias.json other merged
sums merged > got
ok "but --config is" cmp bias.sums got
run tp-shard show other
status_is 0 "and show needs none"
cp bias/ckpt.pt other/ckpt.pt
put other/ckpt.pt model_arg X
run tp-shard show other
status_is 3 "a ckpt.pt of another program"
err_is "tp-shard: other/ckpt.pt: no dictionaries 'model' and 'model_args', as nanoGPT has" "is none of nanoGPT"
cp bias/ckpt.pt other/ckpt.pt
put other/ckpt.pt 'transformer.h.1.mlp.c_fc.bia' X
run tp-shard merge other merged2
status_is 3 "a tensor of another name"
err_has "tensor transformer.h.1.mlp.c_fc.biaX: family gpt2 does not know it in a checkpoint of nanogpt" "is named"

# llm.c's header
word() { # INDEX BYTES MESSAGE ABOUT
    cp f32.bin x.bin
    # shellcheck disable=SC2059 # octal
    printf "$2" | dd of=x.bin bs=4 seek="$1" conv=notrunc status=none
    run tp-shard merge x.bin merged4
    status_is 3 "$4"
    err_is "tp-shard: x.bin: $3" "is told"
}
word 1 '\004' "version 4 of llm.c's checkpoints is not read; 3 (f32) and 5 (bf16) are" "a version that mixes types"
word 1 '\005' "8768 bytes, but its header describes 4896" "another type than the file's"
word 3 '\021' "vocab_size is 17, of 16 padded rows" "a vocabulary beyond its rows"
word 4 '\0' "num_layers is 0" "no layers"
word 4 '\0\0\0\200' "num_layers is -2147483648" "fewer than none"
word 4 '\377\377\377\177' "8768 bytes, too few for ln1w of the header" "more layers than bytes"
word 7 '\377\377\377\177' "8768 bytes, too few for wte of the header" "more rows than bytes"
head -c 8767 f32.bin > x.bin
run tp-shard show x.bin
err_is "tp-shard: x.bin: 8767 bytes, too few for lnfb of the header" "a file that is cut"
head -c 1000 f32.bin > x.bin
run tp-shard show x.bin
err_is "tp-shard: x.bin: 1000 bytes, too few for llm.c's header" "even in its header"
run tp-shard merge --config bias.json f32.bin merged4
status_is 0 "a config that is given counts"
ok "and is the model's" cmp bias.json merged4/config.json
done_testing
