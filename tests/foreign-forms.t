#!/bin/sh
# foreign-forms - checkpoints of Megatron-LM and Meta are read under a family's names
. "${top_srcdir:?}/tests/lib.sh"
gzip -dc "$data/foreign.tar.gz" | tar xf - || exit 99
cd foreign || exit 99
chmod -R u+w .
sed 's/"vocab_size": 128/"vocab_size": 120/' llama.json > padded.json

# sums DIR - the checksums of a merge's tensors, without its files
sums() {
    tp-shard sum "$1" | cut -f 1,2,4 | grep '"' | LC_ALL=C sort -k 3
}

# every form gives what the framework's own loader gives
while read -r form config truth; do
    run tp-shard merge --config "$config.json" "$form" merged
    status_is 0 "$form is merged"
    sums merged > got
    ok "and every tensor has the bytes of the truth" cmp "$truth.sums" got
    tp-shard split -q --config "$config.json" --tp 2 "$form" cut
    tp-shard merge -q cut again
    ok "split reads it, too" cmp merged/model.safetensors again/model.safetensors
    tp-shard split -q --config "$config.json" --tp 2 --ranks 1 "$form" parts
    tp-shard split -q --config "$config.json" --tp 2 --ranks 0 "$form" parts
    ok "and in parts" diff -r cut parts
    ok "with a config.json" cmp merged/config.json "$config.json"
    rm -rf merged cut again parts
done << 'END'
megatron-torch_dist llama llama
megatron-legacy llama llama
mcore-singleton tiny tiny
mcore-moe mixtral mixtral
meta llama llama
meta3 llama llama
END

# Megatron pads the vocabulary
run tp-shard merge --config padded.json megatron-legacy merged
status_is 0 "rows beyond the config's vocabulary are padding"
run tp-shard show merged
ok "and are cut" test "$(grep -c "120, 32" out)" = 2
run tp-shard merge --config padded.json meta merged2
status_is 3 "Meta pads no vocabulary"
err_has "tensor tok_embeddings.weight, 2 of [128, 16], cannot hold model.embed_tokens.weight of family llama" "and the shape is named"

# Meta's params.json is a config
run tp-shard merge meta made
status_is 0 "without a config params.json is one"
out=$(tr , '\n' < made/config.json | grep -E 'hidden_size|intermediate|vocab|heads|eps' | tr -d '{}"' | tr '\n' ' ')
ok "with what it leaves open taken from the tensors" test "$out" = "hidden_size:32 num_attention_heads:4 num_key_value_heads:2 intermediate_size:56 vocab_size:128 rms_norm_eps:1e-05 "
sed 's/"dim"/"use_scaled_rope": true, "dim"/' meta/params.json > p && mv p meta/params.json
run tp-shard merge meta made2
status_is 3 "scaled positions are not told by params.json"
err_is "tp-shard: meta/params.json: what model this is cannot be told; --config gives the model's config.json" "and it says so"
sed 's/"use_scaled_rope": true/"sliding_window": 4096/' meta/params.json > p && mv p meta/params.json
run tp-shard merge meta made2
status_is 3 "nor is Mistral's window, whose files have the same names"
rm meta/params.json
run tp-shard merge meta made2
status_is 3 "without params.json"
err_has "config.json: missing; it lies beside the weights, or --config of tp-shard names it" "a config is asked for"
rm meta/consolidated.01.pth
run tp-shard merge --config llama.json meta made2
status_is 3 "a rank that is missing"
err_has "meta: tensor " "shows by the shapes"

# Megatron's args are a config
keys() { # the config's, one a line, without what names the model's class
    tr -d ' \n{}' < "$1" | tr , '\n' | sed 's/\.0$//; /architectures/d; /hidden_act/d' | LC_ALL=C sort
}
keys llama.json > want
for form in megatron-legacy megatron-torch_dist; do
    run tp-shard merge $form made3
    status_is 0 "without a config the args of $form are one"
    sums made3 > got
    ok "of the same tensors" cmp llama.sums got
    keys made3/config.json > got
    ok "and every key has the value of the truth" cmp want got
    ok "of a Llama" grep -q '"LlamaForCausalLM"' made3/config.json
    rm -rf made3
done
run tp-shard merge mcore-moe made3
sums made3 > got
ok "with experts they are Mixtral's" cmp mixtral.sums got
{ keys mixtral.json; printf '"%s\n' 'max_position_embeddings":64' 'rope_theta":10000' 'sliding_window":null' 'tie_word_embeddings":false' 'torch_dtype":"float32"'; } | LC_ALL=C sort > want
keys made3/config.json > got
ok "whose keys are all said" cmp want got
rm -rf made3
run tp-shard merge mcore-singleton made3
status_is 3 "what Megatron-Core alone writes"
err_is "tp-shard: mcore-singleton/common.pt: no args of a run; --config of tp-shard names the model's config.json" "has no args"
cp -r megatron-legacy/iter_0000003 one
cp -r one twice
cp one/mp_rank_00_000/model_optim_rng.pt twice/mp_rank_00_001
run tp-shard merge --config llama.json twice merged5
status_is 3 "a stage that has what another has"
err_is "tp-shard: twice: duplicate tensor 'rank-0.embedding.word_embeddings.weight'" "is refused by name"
run tp-shard merge --config llama.json one merged3
status_is 0 "the directory of an iteration is one"
# put FILE WORD SKIP BYTES: over what follows SKIP bytes after WORD in a pickle
put() {
    at=$(grep -abo "$2" "$1" | head -n 1 | cut -d : -f 1)
    # shellcheck disable=SC2059 # octal
    printf "$4" | dd of="$1" bs=1 seek=$((at + ${#2} + $3)) conv=notrunc status=none
}
first=one/mp_rank_00_000/model_optim_rng.pt
cp $first kept
put $first checkpoint_version 3 '\077\360' # 1.0
run tp-shard merge --config llama.json one merged4
status_is 3 "another order of q, k and v"
err_is "tp-shard: $first: checkpoint_version 1 has q, k and v in an order of its own, which is not read; 2 and 3 are" "is refused"
cp kept $first
put $first tensor_model_parallel_size 3 '\004'
run tp-shard merge --config llama.json one merged4
err_is "tp-shard: one: 4 directories of ranks, where 8 of 4 tensor ranks, 2 stages and 1 expert ranks are expected" \
    "tensor ranks that are missing are told"
cp kept $first
put $first decoder.layers.0.self_attention.linear_proj.weight -50 model.model.decoder.layers.0.mlp.linear_fc1.weight
run tp-shard merge --config llama.json one merged4
status_is 3 "a tensor with a prefix and without"
err_is "tp-shard: one: tensor decoder.layers.0.mlp.linear_fc1.weight is stored twice, with a prefix and without" \
    "is refused, and none is taken for another rank's"
cp kept $first
put $first pipeline_model_parallel_size 3 '\001'
run tp-shard merge --config llama.json one merged4
err_is "tp-shard: one/mp_rank_00_000: a rank of a run of 2 tensor ranks, 1 stages and 1 expert ranks has another name" \
    "as are stages of a run without"
cp kept $first
cp one/mp_rank_01_001/model_optim_rng.pt other
put one/mp_rank_01_001/model_optim_rng.pt tensor_model_parallel_size 3 '\004'
run tp-shard merge --config llama.json one merged4
err_is "tp-shard: one/mp_rank_01_001/model_optim_rng.pt: tensor_model_parallel_size of 4, where another rank has 2" "and a rank of another run"
cp other one/mp_rank_01_001/model_optim_rng.pt
cp kept $first
# args that are of another model, or of an older Megatron
doubt() { # WORD SKIP BYTES MESSAGE ABOUT
    put $first "$1" "$2" "$3"
    run tp-shard merge one merged4
    err_is "tp-shard: $first: $4; --config of tp-shard names the model's config.json" "$5"
    cp kept $first
}
other="of which no config.json is made"
doubt norm_epsilo 0 X "args do not say norm_epsilon" "args without the epsilon are no config"
doubt normalizatio 0 X "args do not say normalization" "nor those without the kind of norm"
doubt swiglu 2 '\211' "args say swiglu = 0, $other" "args of another activation are no config"
doubt use_rope_scaling 2 '\210' "args say use_rope_scaling = 1, $other" "nor those of scaled positions"
doubt rotary_interleaved 2 '\210' "args say rotary_interleaved = 1, $other" "nor those of pairs"
doubt mtp_num_layers 2 '\210' "args say mtp_num_layers = 1, $other" "nor those of more predictions"
doubt num_query_group 0 X "args do not say num_query_groups" "nor those without the groups"
put $first swiglu 2 '\211'
run tp-shard show one
status_is 0 "show needs none"
run tp-shard merge --config llama.json one merged4
status_is 0 "and --config wins"
cp kept $first
put $first group_query_attention 2 '\211'
run tp-shard merge one merged6
err_has "cannot hold model.layers.0.self_attn.q_proj.weight" "groups that are turned off do not count"
cp kept $first
put $first padded_vocab_siz 0 X
run tp-shard merge one merged6
ok "the vocabulary is that of the tensors, if need be" grep -q '"vocab_size":128' merged6/config.json
cp kept $first
mv one/mp_rank_01_001 lost
run tp-shard merge --config llama.json one merged4
status_is 3 "a rank that is missing"
err_is "tp-shard: one: 3 directories of ranks, where 4 of 2 tensor ranks, 2 stages and 1 expert ranks are expected" "is told"
mv lost one/mp_rank_01_002
run tp-shard merge --config llama.json one merged4
err_is "tp-shard: one/mp_rank_01_002: of a run of 2 tensor ranks, 2 stages and 1 expert ranks" "and one in another's place"
mv one/mp_rank_01_002 lost
cp -r one/mp_rank_00_000 one/mp_rank_0_0
run tp-shard merge --config llama.json one merged4
err_is "tp-shard: one: no directory of tensor rank 1 of stage 1" "and one that is there twice, in place of another"
rm -r one/mp_rank_0_0
echo 4 > megatron-legacy/latest_checkpointed_iteration.txt
run tp-shard show megatron-legacy
status_is 3 "an iteration that is missing"
err_is "tp-shard: megatron-legacy/iter_0000004: missing, but latest_checkpointed_iteration.txt names it" "is named"
echo x > megatron-legacy/latest_checkpointed_iteration.txt
run tp-shard show megatron-legacy
err_is "tp-shard: megatron-legacy/latest_checkpointed_iteration.txt: 'x' is no iteration" "or is none"
sed 's/"model_type": "llama"/"model_type": "olmo"/' llama.json > olmo.json
run tp-shard merge --config olmo.json megatron-torch_dist made5
status_is 3 "a family without names of Megatron"
err_has "a checkpoint of megatron, whose names of family olmo are not known" "is refused"
sed 's/"intermediate_size": 56/"intermediate_size": 64/' llama.json > wide.json
run tp-shard merge --config wide.json megatron-torch_dist made6
status_is 3 "a config of another width"
err_has "cannot hold model.layers.0.mlp" "is refused by name"
run tp-shard merge --config mixtral.json mcore-singleton made7
status_is 3 "a config of another model"
err_has "mcore-singleton: tensor " "is refused by name"

# prefixes that wrappers of a model leave
gqa=$data/models/llama-gqa
wrap() { # FROM TO NAME: the header's names with a prefix
    rm -rf w && mkdir w && cp "$gqa/config.json" w
    size=$(od -An -tu8 -N8 "$gqa/model.safetensors" | tr -d ' ')
    head -c $((8 + size)) "$gqa/model.safetensors" | tail -c +9 | sed "$1" | sed 's/ *$//' > header
    while [ $(($(wc -c < header) % 8)) != 0 ]; do printf ' ' >> header; done
    n=$(wc -c < header)
    # shellcheck disable=SC2059 # octal
    { printf "$(printf '\\%03o\\%03o' $((n % 256)) $((n / 256)))\\0\\0\\0\\0\\0\\0"; cat header
        tail -c +$((9 + size)) "$gqa/model.safetensors"; } > w/model.safetensors
    run tp-shard show w
}
wrap 's/"\(lm_head\|model\)/"module.\1/g'
status_is 0 "module. before all names is left out"
err_is "tp-shard: w: names are read without 'module.'" "and it is said once"
wrap 's/"\(lm_head\|model\)/"_orig_mod.\1/g; s/layers\.1\./layers.1._fsdp_wrapped_module./g'
status_is 0 "so are _orig_mod. and what FSDP puts inside"
run tp-shard diff w "$gqa"
status_is 0 "the tensors are the same"
wrap 's/"lm_head/"module.lm_head/'
status_is 0 "a prefix of one name alone"
out_has "module.lm_head.weight" "stays"
err_empty "since not all names would bind"
done_testing
