#!/bin/sh
# tp-shard-configs.t - parts that open as models of their own
. "${top_srcdir:?}/tests/lib.sh"

run tp-shard split -q --tp 3 --keep-vocab --rank-configs "$bard" cut
status_is 0 "a directory for each part is made"
ok "its weights are a link to the rank file" \
    test "$(readlink cut/hf-tp2-pp0/model.safetensors)" = ../rank-tp2-pp0.safetensors
for pair in num_attention_heads:2 num_key_value_heads:1 head_dim:32 intermediate_size:171 \
    hidden_size:192 vocab_size:1024 num_hidden_layers:6; do
    ok "config.json of a part has $pair" grep -q "^  \"${pair%:*}\": ${pair#*:},\{0,1\}\$" \
        cut/hf-tp1-pp0/config.json
done
run tp-shard verify cut
status_is 0 "the checkpoint is intact"
tp-shard show cut/hf-tp1-pp0 | tail -n 1 > out
out_has "llama: 57 tensors" "a part is a model with all its tensors"
run tp-run generate --ids 5,9,3 --max-tokens 3 cut/hf-tp1-pp0
status_is 0 "and runs"
run tp-run score "$heldout" cut
out_has "nll $heldout_nll" "the checkpoint itself runs as ever"
tp-shard merge -q cut whole
ok "merging leaves the directories out" test ! -e whole/hf-tp0-pp0
tp-shard reshard -q --tp 2 cut two
ok "so does cutting anew" test ! -e two/hf-tp0-pp0
run tp-shard reshard -q --tp 3 --keep-vocab --rank-configs two three
ok "reshard makes them too" diff -r cut three
run tp-shard split -q -f --tp 3 --keep-vocab --rank-configs "$bard" cut
status_is 0 "--force replaces what has them"
run tp-shard split -q -f --tp 1 --rank-configs "$bard" one
ok "one rank's is the config as it was" cmp "$bard/config.json" one/hf-tp0-pp0/config.json

# damage
cp -r cut damaged
printf ' ' >> damaged/hf-tp0-pp0/config.json
rm damaged/hf-tp1-pp0/model.safetensors
rm damaged/hf-tp2-pp0/model.safetensors
cp damaged/rank-tp2-pp0.safetensors damaged/hf-tp2-pp0/model.safetensors
run tp-shard verify damaged
status_is 1 "verify looks at them"
out_has "hf-tp0-pp0/config.json: " "a changed config is found"
out_has "hf-tp1-pp0/model.safetensors: missing" "a missing link"
out_has "hf-tp2-pp0/model.safetensors: is not the rank file" "and other weights"
run tp-shard verify --ranks 1 damaged
out_is "hf-tp1-pp0/model.safetensors: missing" "of the ranks that were asked for"

# what no config.json can say
run tp-shard split --tp 3 --rank-configs "$bard" never
status_is 2 "a cut vocabulary is refused"
err_has "--keep-vocab leaves it whole" "with what helps"
run tp-shard split --tp 2 --keep-vocab --rank-configs "$data/models/llama-awkward" never
status_is 1 "so are heads that transformers would not take"
err_is "tp-shard: --rank-configs: the part at tp 0: hidden % heads == 0 does not hold for it" "for a reason"
run tp-shard split --tp 2 --keep-vocab --rank-configs "$data/models/neox" never
status_is 1 "so is a family whose config says no width of a head"
err_has "family gpt_neox" "by name"
run tp-shard split --tp 2 --ep 2 --keep-vocab --rank-configs "$data/models/mixtral" never
status_is 1 "so are dealt experts"
run tp-shard split --tp 2 --keep-vocab --rank-configs "$data/quantized/fp8" never
status_is 1 "so are weights that are quantized with companions"
err_has "quantized weights" "by name"
run tp-shard split --pad-vocab 7 --rank-configs "$bard" never
status_is 2 "and a padded vocabulary, on one rank too"
ok "nothing was written" test ! -e never -a ! -e never.partial

# a family of one's own that forgets a key is found out
tp-shard families llama | sed 's/"intermediate_size": "ffn"/"other": "ffn"/' > mine.json
run tp-shard split --tp 3 --keep-vocab --rank-configs --family mine.json "$bard" never
status_is 1 "a key that is forgotten is found"
err_has "cannot say what it has of model.layers.0.mlp.gate_proj.weight" "by the tensor that would not fit"
tp-shard families llama | sed 's/"intermediate_size": "ffn"/"intermediate_size": "fnn"/' > mine.json
run tp-shard families --check --family mine.json
status_is 3 "and a wrong shape by families --check"
err_has "'fnn' is no symbol" "by name"
done_testing
