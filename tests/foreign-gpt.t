#!/bin/sh
# foreign-gpt - nanoGPT's checkpoints are read as GPT-2
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

for kind in bias plain untied; do
    run tp-shard merge $kind merged
    status_is 0 "$kind: a checkpoint of nanoGPT is merged"
    if [ $kind = plain ]; then
        err_has "tp-shard: plain: has no biases; those that GPT-2 has become zeros" "zeros are told"
    fi
    sums merged > got
    ok "every tensor has the bytes that transformers stores" cmp $kind.sums got
    keys $kind.json > want
    keys merged/config.json | LC_ALL=C comm -23 - want > got
    ok "and every key of the config its value" test ! -s got
    tp-shard split -q --tp 2 $kind cut 2> /dev/null
    tp-shard merge -q cut again
    ok "split reads it, too" cmp merged/model.safetensors again/model.safetensors
    run tp-shard verify $kind
    status_is 0 "and verify"
    rm -rf merged cut again
done

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
done_testing
