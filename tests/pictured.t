#!/bin/sh
# pictured.t - the text model beside a tower for pictures: run, split, merged and counted (tests/oracle/make-pictured.py)
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors
ids=1,5,9,13,2,7,30,31,4,11,6,29

for dir in "$data"/pictured/*/; do
    dir=${dir%/}
    model=${dir##*/}
    tp-run logits -q --ids $ids -o one.safetensors "$dir"
    ok "$model: ids alone are answered as by transformers" "$compare" "$dir/expected.safetensors" one.safetensors 1e-5 logits
    rm -rf cut back
    tp-shard split -q --tp 3 "$dir" cut && tp-run logits -q --tp 3 --ids $ids -o three.safetensors cut
    ok "$model: and so on three ranks" "$compare" "$dir/expected.safetensors" three.safetensors 1e-5 logits
    tp-shard merge -q cut back
    ok "$model: merged it is the file again, the tower with it" cmp "$dir/model.safetensors" back/model.safetensors
    params=$(tr -cd '[:print:]' < "$dir/expected.safetensors" | sed 's/.*"parameters":"\([0-9]*\)".*/\1/')
    run mem-estimate infer --json "$dir/config.json"
    out_has "\"params\":$params," "$model: mem-estimate counts the tower from config.json"
done

# a pipeline: the tower lies with the first stage
tp-shard split -q --pp 2 "$data/pictured/llama4" stages && tp-shard merge -q stages whole
ok "a tower is kept through pipeline stages" cmp "$data/pictured/llama4/model.safetensors" whole/model.safetensors

# what lies within it is what no family matches
mkdir other
sed 's/"model_type": "mistral"/"model_type": "other"/' "$data/pictured/llava/config.json" > other/config.json
run tp-run program other
status_is 3 "a text model that no family matches is refused"
err_is "tp-run: other/config.json: no family matches model_type 'other' of its text_config; one is described in a file for --family, see shardutils-family(5)" "by name"
sed 's/"rope_type": "default"/"rope_type": "odd"/' "$data/pictured/llava/config.json" > other/config.json
run tp-run program other
status_is 3 "a setting of the text model that is not known is refused"
err_has "other/config.json: " "with the file"
done_testing
