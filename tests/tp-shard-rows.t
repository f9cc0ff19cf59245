#!/bin/sh
# tp-shard-rows.t - rank files hold the original's rows in the original's order
. "${top_srcdir:?}/tests/lib.sh"
plain_rows=$top_builddir/tests/plain-rows

# holds MODEL MESH - every tensor of every part, read plainly, is what the plan names
holds() {
    rm -rf cut
    tp-shard split -q --mesh "$2" "$1" cut && tp-shard plan --json --mesh "$2" "$1" > plan &&
        "$plain_rows" plan cut "$1"/*.safetensors
}

: > covered
for model in "$data"/models/*/ "$data"/models/*/hf/ "$data"/stacks/*/ "$data"/quantized/*/ "$data"/heads/t5-*/ "$data"/heads/longt5-*/ "$data"/encoders/*/ "$data"/pictured/*/; do
    model=${model%/}
    ls "$model"/model*.safetensors > /dev/null 2>&1 || continue
    name=${model#"$data/"}
    rm -f "$name"
    tp-shard show --json "$model" | sed -n 's/.*"type":"summary","family":"\([^"]*\)".*/\1/p' >> covered
    for mesh in tp=2,pp=1 tp=3,pp=2; do
        case $name in
        *act-order) mesh=tp=1,pp=${mesh#*pp=} ;;
        *bert-classify) mesh=tp=2,pp=${mesh#*pp=} ;; # two heads
        esac
        ok "$name at $mesh: parts hold the rows that the plan names" holds "$model" "$mesh"
    done
done

# the families without a model here are Llama but for its experts, which others have, and for how positions count
tp-shard families | sed 's/ .*//' | grep -vx -e deepseek -e ministral3 | sort > families
sort -u covered > covered.once
ok "every family was among them" diff families covered.once

for tp in 4 6; do
    ok "more ranks than heads of keys share rows, in order as well (tp $tp)" \
        holds "$data/models/falcon-groups" "tp=$tp"
done
ok "and experts are dealt whole" holds "$data/models/mixtral" tp=2,ep=2
ok "so are experts that are an axis" holds "$data/quantized/gpt-oss-bf16" tp=3,ep=2

# before, GPT-NeoX' q, k and v were apart: a part's first rows are a head's q, k and v
model=$data/models/neox
tp-shard split -q --tp 3 "$model" neox
tp-shard plan --json --tp 3 "$model" > plan
ok "GPT-NeoX: the heads of a rank are one run of rows" grep -q \
    '"name":"gpt_neox.layers.0.attention.query_key_value.weight","part":1,.*"axes":\[\[\[48,48\]\],\[\[0,48\]\]\]' plan

# checkpoints of version 1, whose cut axes were stored segment by segment
old=$data/version-1/bigcode-heads
model=$data/models/bigcode-heads
ok "a checkpoint of version 1 is one" grep -q '"version":1,' "$old/checkpoint.json"
ok "it is intact" tp-shard verify "$old"
ok "and was cut from its model" tp-shard verify --against "$model" "$old"
ok "it has the model's values" tp-shard diff "$old" "$model"
tp-shard merge -q "$old" merged
ok "merging it gives the files back byte for byte" cmp "$model/model.safetensors" merged/model.safetensors
tp-shard reshard -q "$old" new
tp-shard split -q --tp 4 "$model" direct
ok "cutting it anew for its own mesh makes it one without state, of version 2" diff -r -x checkpoint.json direct new
ok "which says so" grep -q '"version":2,' new/checkpoint.json
tp-shard reshard -q --tp 3 "$old" new3
tp-shard split -q --tp 3 "$model" direct3
ok "another mesh is cut as from the model" diff -r -x checkpoint.json direct3 new3
ids=5,9,3,7,11,4,8
for tp in 2 4 6; do
    tp-run logits -q --tp $tp --ids $ids -o live.safetensors "$model"
    tp-run logits -q --tp $tp --ids $ids -o old.safetensors "$old"
    ok "it answers on $tp ranks to the bit as the model does" cmp live.safetensors old.safetensors
done
tp-shard plan --json --tp 4 "$model" > plan
run "$plain_rows" plan "$old" "$model/model.safetensors"
status_is 1 "its rows, read plainly, are not the original's in order"
cp -r "$old" damaged
chmod -R u+w damaged
printf '\377' | dd of=damaged/rank-tp1-pp0.safetensors bs=1 seek=9000 conv=notrunc 2> dd.err
run tp-run logits -q --ids $ids -o never.safetensors damaged
status_is 3 "a damaged part of it is not run"
err_has "is damaged" "because its CRC-32 differs"

# what a later version would have is refused; the checksum covers all before it
sed -i 's/"version":2,/"version":4,/' new/checkpoint.json
reseal new
run tp-shard merge new never
status_is 3 "a version that is not known is refused"
err_has "version 4; this program reads 1 to 3" "by its number"
done_testing
