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

# published configurations lack sizes that are the classes' defaults: counts of transformers 5.24
# published NAME PARAMETERS JSON
published() {
    printf '%s' "$3" > published.json
    run mem-estimate infer --json published.json
    out_has "\"params\":$2," "$1 has $2 parameters"
}
clip='"vision_config":{"model_type":"clip_vision_model","hidden_size":1024,"image_size":336,"intermediate_size":4096,"num_attention_heads":16,"num_hidden_layers":24,"patch_size":14}'
siglip='"vision_config":{"model_type":"siglip_vision_model","hidden_size":1152,"image_size":896,"intermediate_size":4304,"num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,"vision_use_head":false}'
published "LLaVA 1.5 7B" 7063427072 '{"model_type":"llava","architectures":["LlavaForConditionalGeneration"],"image_token_index":32000,"text_config":{"model_type":"llama","rms_norm_eps":1e-5,"vocab_size":32064},'"$clip}"
published "Gemma 3 4B" 4300079472 '{"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],"text_config":{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024},'"$siglip}"
published "Qwen2.5-VL 7B" 8292166656 '{"model_type":"qwen2_5_vl","architectures":["Qwen2_5_VLForConditionalGeneration"],"hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,"tie_word_embeddings":false,"vision_config":{"depth":32,"hidden_size":1280,"intermediate_size":3420,"num_heads":16,"out_hidden_size":3584,"patch_size":14}}'

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
