#!/bin/sh
# tp-shard-pickle.t - files of torch.save are read without being run
. "$top_srcdir/tests/lib.sh"
pickles=$data/pickles

for name in types types-legacy types-new views views-legacy training nested; do
    run tp-shard diff "$pickles/$name.pt" "$pickles/$name.safetensors"
    status_is 0 "$name.pt has the tensors that torch.load gives"
done
run tp-shard show "$pickles/views.pt"
out_has "every.second" "tensors have the names of their keys"

rm -f /tmp/pickle-was-run
for name in empty module negated plain short system system-legacy; do
    run tp-shard show "$pickles/refused-$name.pt"
    status_is 3 "refused-$name.pt is refused"
    err_lines 1 "refused-$name.pt is refused in one line"
done
run tp-shard show "$pickles/refused-system.pt"
err_is "tp-shard: $pickles/refused-system.pt: refused: its pickle names posix.system" \
    "what a refused pickle names is told"
run tp-shard show "$pickles/refused-negated.pt"
err_has "a tensor that is negated or conjugated when it is read" "as is why values would be wrong"
ok "nothing in it was run" test ! -e /tmp/pickle-was-run

# a model in this form
run tp-shard split -q --tp 3 "$pickles/model" cut
status_is 0 "pytorch_model.bin is cut"
tp-shard verify -q --against "$pickles/model" cut > out
status_is 0 "and agrees with its rank files"
run tp-shard merge -q cut whole
ok "merging writes safetensors" test -f whole/model.safetensors
run tp-shard diff whole "$data/models/llama-gqa"
status_is 0 "with the values of the model, transposed and shared ones too"
run tp-shard split -q --tp 5 "$pickles/model-shards" cut5
status_is 0 "shards with an index are cut"
run tp-shard merge -q cut5 whole5
ok "and merged to as many shards with an index" \
    grep -q model-00002-of-00002.safetensors whole5/model.safetensors.index.json
run tp-shard diff whole5 whole
status_is 0 "which have the same values"
rm -rf again again5
tp-shard split -q --tp 5 whole5 again5 && tp-shard merge -q again5 again
ok "what was merged is a model directory like any other" diff -r whole5 again

# since transformers 5 a model's state has the experts of a layer in one tensor
rm -rf experts two.experts
run tp-shard split -q --mesh tp=2,ep=2 "$pickles/model-experts" two.experts
status_is 0 "experts in one tensor are cut as tensors of their own"
run tp-shard verify -q --against "$pickles/model-experts" two.experts
status_is 0 "and are those of the file that they are from"
run tp-shard merge -q two.experts experts
status_is 0 "and merged"
run tp-shard diff experts "$data/models/qwen3-moe"
status_is 0 "as save_pretrained has them"
mkdir wrong
cp "$pickles/model-experts/pytorch_model.bin" wrong
sed 's/\("num_[a-z_]*experts": \)6/\15/' "$pickles/model-experts/config.json" > wrong/config.json
run tp-shard split -q --tp 2 wrong wrong.cut
status_is 3 "a stack of another number of experts is none"
err_has "mlp.experts.gate_up_proj: no rule of family qwen3_moe matches it" "and told by name"

mkdir attack
cp "$pickles/model-shards/config.json" attack
printf '{"weight_map":{"a":"../x.bin"}}' > attack/pytorch_model.bin.index.json
run tp-shard show attack
status_is 3 "an index that leaves the directory is refused"

# archives whose directory lies
LC_ALL=C sed 's,/data/1,/data/0,g' "$pickles/types.pt" > twice.pt
run tp-shard show twice.pt
status_is 3 "an archive with two members of a name is refused"
err_has "two members of one name" "which is told"
cp "$pickles/types.pt" beyond.pt
chmod u+w beyond.pt
at=$(LC_ALL=C grep -obUaP 'PK\x01\x02' beyond.pt | sed -n '2s/:.*//p')
for field in 20 24; do
    printf '\377\377\377\000' | dd of=beyond.pt bs=1 seek=$((at + field)) conv=notrunc 2> dd.err
done
run tp-shard show beyond.pt
status_is 3 "so is one whose member goes beyond the file"
err_lines 1 "in one line"

# a download that ended early, at many places: one line each, and nothing is shown
for name in types-legacy types nested; do
    size=$(wc -c < "$pickles/$name.pt")
    at=0 wrong=
    while [ $at -lt "$size" ]; do
        head -c $at "$pickles/$name.pt" > short.pt
        run tp-shard show short.pt
        [ "$status" -eq 3 ] && [ "$(wc -l < err)" -eq 1 ] && [ ! -s out ] || wrong="$wrong $at"
        at=$((at + size / 50 + 1))
    done
    ok "$name.pt cut short is refused wherever it ends" test -z "$wrong"
done
done_testing
