#!/bin/sh
# stored.t - tensors under another name, twice, or beside what the family reads
. "${top_srcdir:?}/tests/lib.sh"
models=$data/models
compare=$top_builddir/tests/compare-tensors

# reheader IN OUT SCRIPT: the safetensors file IN with its header changed by sed
reheader() {
    size=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$size" | sed "$3" > header
    bytes=$(wc -c < header)
    {
        printf "$(printf '\\%03o\\%03o' $((bytes % 256)) $((bytes / 256)))"
        printf '\0\0\0\0\0\0'
        cat header
        tail -c +$((9 + size)) "$1"
    } > "$2"
}

# renamed MODEL DIR SCRIPT: a copy of MODEL as DIR, its header changed
renamed() {
    rm -rf "$2"
    cp -r "$1" "$2"
    chmod -R u+w "$2"
    reheader "$1/model.safetensors" "$2/model.safetensors" "$3"
}

# comes_back DIR: split and merge give its weight file back
comes_back() {
    rm -rf cut whole
    tp-shard split -q --tp 2 --pp 2 "$1" cut && tp-shard verify cut && tp-shard merge -q cut whole &&
        cmp whole/model.safetensors "$1/model.safetensors"
}

# comes_back_of DIR MODEL: the same, of the files that MODEL has
comes_back_of() {
    rm -rf cut whole
    tp-shard split -q --tp 2 "$1" cut && tp-shard merge -q cut whole || return 1
    for file in "$2"/model*; do
        cmp "$file" "whole/${file##*/}" || return 1
    done
}

# same_logits DIR DIR OPTION...: both say the same
same_logits() {
    one=$1
    other=$2
    shift 2
    tp-run logits -q --ids 0,5,6,2 -o one.st "$@" "$one" && tp-run logits -q --ids 0,5,6,2 -o other.st "$@" "$other" &&
        "$compare" one.st other.st 1e-5 logits
}

# ---- safetensors' save_model stores tied tensors once, under any of their names

tied=$models/smollm
note='s/"format":"pt"/"format":"pt","model.embed_tokens.weight":"lm_head.weight"/'
renamed "$tied" alias "$note; s/\"model.embed_tokens.weight\":{/\"lm_head.weight\":{/"
ok "the head stands for the table: the same logits" same_logits alias "$tied"
ok "and on ranks" same_logits alias "$tied" --tp 3
ok "split and merge give the file back" comes_back alias
ok "its parts say the same" same_logits cut "$tied"
rm -rf again
run tp-shard reshard -q --tp 3 --pp 1 cut again
status_is 0 "they are cut anew"
ok "and say the same" same_logits again "$tied"
for command in "mem-estimate infer --json" "pp-partition plan --pp 2 --json"; do
    $command "$tied" | sed 's/model.embed_tokens.weight/lm_head.weight/g' > want
    run $command alias
    sed 's/"alias"/"'"$(printf %s "$tied" | sed 's,/,\\/,g')"'"/' out > got
    ok "$command counts as much" cmp want got
done
run tp-run train -q --data "$bard/heldout.txt" --seq 16 --steps 1 --ids-only -o trained alias
[ "$status" -ne 2 ] || run tp-run train -q --data "$bard/heldout.txt" --seq 16 --steps 1 -o trained alias
tp-shard show alias > shown
ok "show names what is stored" grep -q lm_head.weight shown

t5=$data/stacks/t5
renamed "$t5" alias5 's/"format":"pt"/"format":"pt","shared.weight":"decoder.embed_tokens.weight","lm_head.weight":"decoder.embed_tokens.weight"/
    s/"shared.weight":{/"decoder.embed_tokens.weight":{/'
ok "T5's decoder stands for three others" same_logits alias5 "$t5" --source-ids 4,5
ok "and comes back" comes_back alias5

# the config does not tie, the file's metadata does
renamed "$tied" noted 's/"format":"pt"/"format":"pt","lm_head.weight":"model.embed_tokens.weight"/'
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$tied/config.json" > noted/config.json
ok "the metadata ties what the config does not" same_logits noted "$tied"
ok "and comes back" comes_back noted
ok "tied" same_logits cut "$tied" --tp 2

# refused DIR SCRIPT MESSAGE NAME
refused() {
    cp noted/config.json config
    renamed "$tied" "$1" "$2"
    cp config "$1/config.json"
    run tp-shard split --tp 2 "$1" never
    status_is 3 "$4: status 3"
    err_is "tp-shard: $1: $3" "$4"
}
refused gone 's/"format":"pt"/"lm_head.weight":"model.other.weight"/' \
    "tensor lm_head.weight: the metadata says that it is stored as model.other.weight, which is missing" \
    "an alias of a tensor that is not there"
refused circle 's/"format":"pt"/"lm_head.weight":"model.embed_tokens.weight","model.embed_tokens.weight":"lm_head.weight"/
    s/"model.embed_tokens.weight":{/"model.norm.bias":{/' \
    "tensor model.norm.bias: no rule of family llama matches it" "two aliases of one another"
refused another 's/"format":"pt"/"lm_head.weight":"model.norm.weight"/' \
    "tensor lm_head.weight: the metadata says that it is stored as model.norm.weight, which in family llama is another tensor" \
    "an alias of another shape"
refused two 's/"format":"pt"/"lm_head.weight":"model.embed_tokens.weight","lm_head.weight":"model.norm.weight"/' \
    "tensor lm_head.weight: the metadata says that it is stored as model.embed_tokens.weight, and as model.norm.weight" \
    "an alias that names two"
renamed "$tied" number 's/"format":"pt"/"lm_head.weight":5/'
run tp-shard split --tp 2 number never
err_is "tp-shard: number/model.safetensors: header:1:35: expected a string" "an alias that is a number"
ok "nothing was written" test ! -e never
renamed "$tied" bare 's/{"format":"pt"}/null/'
ok "metadata may be null" same_logits bare "$tied"
ok "and comes back" comes_back bare

# ---- what stands for a model, and what does not

model=$models/llama-sharded
mkdir -p cache/refs cache/snapshots
cp -r "$model" cache/snapshots/0a1b
printf '0a1b\n' > cache/refs/main
ok "the top of a hub cache is its main snapshot" same_logits cache "$model"
run mem-estimate infer cache
out_has "cache: llama, 61480 parameters, weights as stored" "for every program"
ok "split takes it" comes_back_of cache "$model"
cp -r "$model" cache/snapshots/2c3d
echo 2c3d/../0a1b > cache/refs/main
run tp-run logits --ids 1 -o l cache
status_is 3 "a cache that leaves the choice is refused"
err_is "tp-run: cache: a hub cache whose refs/main names none of 2 snapshots; give one, such as cache/snapshots/2c3d" \
    "and one is proposed"
rm -r cache/snapshots/2c3d cache/refs
ok "an only snapshot is no choice" same_logits cache "$model"
rm -r cache/snapshots/0a1b
run pp-partition plan --pp 2 cache
err_is "pp-partition: cache: a hub cache without a snapshot" "an empty cache has none"

ok "an index stands for its directory" same_logits "$model/model.safetensors.index.json" "$model"
tp-shard split -q --tp 2 "$model" cut4
ok "so does a manifest" same_logits cut4/checkpoint.json "$model"
cp -r "$model" plain
chmod -R u+w plain
rm plain/model.safetensors.index.json
ok "all shards need no index" same_logits plain "$model"
ok "and come back" comes_back_of plain plain
run mem-estimate infer plain
out_has "weights as stored" "mem-estimate reads them, too"
mv plain/model-00002-of-00004.safetensors elsewhere
run tp-run logits --ids 1 -o l plain
status_is 3 "of shards without an index none may be missing"
none="no model.safetensors, no pytorch_model.bin, and no index of either"
err_is "tp-run: plain: $none; only 3 of the 4 files model-*-of-00004.safetensors are there" "as is told"
mv elsewhere plain/model-00002-of-00005.safetensors
run tp-run logits --ids 1 -o l plain
err_is "tp-run: plain: $none; its files model-*.safetensors are of several sets" "nor of another set"

pointer='version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n'
mkdir lfs bin conf gguf adapter above
cp "$model/config.json" lfs && cp "$model/config.json" bin && cp "$model/config.json" gguf
for file in lfs/model.safetensors bin/pytorch_model.bin conf/config.json; do
    # shellcheck disable=SC2059 # escapes
    printf "$pointer" > $file
done
cp "$model"/model* conf
printf 'GGUF\3\0\0\0........' | tee gguf/m.gguf > m.gguf
cp -r "$model" above/inside
echo '{"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["q_proj"]}' > adapter/adapter_config.json
while IFS=@ read -r path message counted; do
    run tp-run logits --ids 1 -o l "$path"
    status_is 3 "$path is no model"
    err_is "tp-run: $path$message" "tp-run says what it is"
    run mem-estimate infer "$path"
    status_is 3 "nor one to count"
    err_is "mem-estimate: $path${counted:-$message}" "mem-estimate says it as well"
done <<EOF
lfs@/model.safetensors: is a pointer of Git LFS (git lfs pull), not a safetensors file@
bin@/pytorch_model.bin: is a pointer of Git LFS (git lfs pull), not a file of torch.save@
conf@/config.json: is a pointer of Git LFS (git lfs pull)@
m.gguf@: byte 16: the file ends in its header@
above@: $none; there is a model in above/inside@/config.json: missing; there is a model in above/inside
adapter@: an adapter, which names no base_model_name_or_path: give its model with --base@/config.json: missing; it is an adapter: give the model that it belongs to
$bard/tokenizer.json@: is a tokenizer, not a model; give its directory, $bard@
EOF
mkdir -p steps/step-000005 steps/step-000040 steps/step-000050.partial
for step in steps/*; do echo '{}' > "$step/config.json"; done
run tp-run logits --ids 1 -o l steps
err_is "tp-run: steps: $none; there is a model in steps/step-000040" "of a run's checkpoints the newest is named"
run tp-run logits --ids 1 -o l gguf
err_is "tp-run: gguf/m.gguf: byte 16: the file ends in its header" "a directory of one GGUF file is that model"

run tp-run logits --ids 1 -o l "$models/llama-gqa/model.safetensors"
err_is "tp-run: $models/llama-gqa/model.safetensors: a single file has no config.json to run by; give the directory of both" \
    "weights alone are no model"

# a norm in 64 bits, of zeros
end=$(($(wc -c < "$models/llama-gqa/model.safetensors") - 8 - $(od -An -tu8 -N8 "$models/llama-gqa/model.safetensors")))
renamed "$models/llama-gqa" wide "s/\"model.norm.weight\":/\"model.rotary_emb.inv_freq\":/
    s/{/{\"model.norm.weight\":{\"dtype\":\"F64\",\"shape\":[32],\"data_offsets\":[$end,$((end + 256))]},/"
head -c 256 /dev/zero >> wide/model.safetensors
run tp-run logits --ids 1 -o l wide
status_is 3 "nothing is computed with 64 bits"
err_is "tp-run: wide/model.safetensors: tensor model.norm.weight: cannot compute with type F64; tp-shard split --dtype f32 converts it" \
    "and file, tensor and the way out are told"
rm -rf cut
tp-shard split -q --tp 2 --dtype f32 wide cut
run tp-run logits --ids 1 -o l cut
status_is 0 "which it does"

# ---- more in the files than the config says

cp -r "$tied" short
chmod -R u+w short
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' "$tied/config.json" > short/config.json
for command in "tp-run logits --ids 1 -o l" "tp-shard split --tp 2" "mem-estimate infer" "pp-partition plan --pp 1"; do
    case $command in tp-shard*) run $command short never ;; *) run $command short ;; esac
    status_is 3 "${command% -*}: fewer layers than are stored"
    err_is "${command%% *}: short: tensor model.layers.1.input_layernorm.weight: its layer is 1, but the config has 1 layers (num_hidden_layers)" \
        "and which, by number and key"
done

# ---- an index may name files of its directory by ./

cp -r "$models/llama-sharded" dotted
chmod -R u+w dotted
sed 's,"model-,"./model-,' "$models/llama-sharded/model.safetensors.index.json" > dotted/model.safetensors.index.json
ok "an index that names ./files" same_logits dotted "$models/llama-sharded"
run mem-estimate infer dotted/model.safetensors.index.json
out_has "weights as stored" "its files are found by its name, too"
rm -rf cut whole
tp-shard split -q --tp 2 dotted cut && tp-shard merge -q cut whole
for file in dotted/model*; do
    ok "${file#*/} comes back" cmp "$file" "whole/${file#*/}"
done
sed 's,"model-00001,"../model-00001,' "$models/llama-sharded/model.safetensors.index.json" > dotted/model.safetensors.index.json
run tp-run logits --ids 1 -o l dotted
status_is 3 "other directories are refused"
err_has "is not a file of this directory" "by name"

# ---- config.json as Python writes it

cp -r "$models/llama-gqa" python
chmod -R u+w python
{
    printf '\357\273\277'
    sed '2s/^/ "time_step_limit": [0.0, Infinity], "low": -Infinity, "none": NaN,\n/' "$models/llama-gqa/config.json"
} > python/config.json
run tp-run logits --ids 1 -o l python
err_is "tp-run: python/config.json: not known to family llama and ignored: time_step_limit, low, none" \
    "Infinity and NaN are numbers of config.json"
ok "and change nothing" same_logits python "$models/llama-gqa"
tp-shard split -q --tp 2 --keep-vocab --rank-configs python cut3
ok "a rank's config keeps them" grep -q '"time_step_limit": \[0.0, *Infinity\]' cut3/hf-tp1-pp0/config.json
ok "the parts say the same" same_logits cut3 "$models/llama-gqa"
sed 's/"hidden_size": 32,/"hidden_size": 7, "hidden_size": 9, &/' "$models/llama-gqa/config.json" > python/config.json
run tp-run logits --ids 1 -o l python
err_empty "the last of equal keys counts"
ok "and the model is the same" same_logits python "$models/llama-gqa"
while IFS=@ read -r script place; do
    sed "$script" "$models/llama-gqa/config.json" > torn.json
    run mem-estimate infer torn.json
    status_is 3 "a config with $script"
    err_is "mem-estimate: torn.json:$place" "its line and column"
done <<'EOF'
s/"hidden_size": /"hidden_size" /@12:17: expected ':'
s/"hidden_size": 32/"hidden_size": Nan/@12:18: expected a value
s/"hidden_size": 32/"hidden_size": -Inf/@12:18: bad number
$d@32:1: unexpected end
EOF

# ---- tied by the config, but both are stored and differ: two tensors

both=$models/gpt2-awkward
renamed "$both" untied ''
size=$(wc -c < header)
printf 'x' | dd of=untied/model.safetensors bs=1 conv=notrunc seek=$((8 + size + 7)) 2> dd.err
cp -r untied apart
sed 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' untied/config.json > apart/config.json
grep -q '"tie_word_embeddings": false' apart/config.json ||
    sed 's/^{/{ "tie_word_embeddings": false,/' untied/config.json > apart/config.json
differ="lm_head.weight and transformer.wte.weight are both stored, and differ: not tied, although the config says so"
run tp-run logits --tp 3 --ids 1,2 -o l untied
status_is 0 "a head that differs is a tensor of its own"
err_is "tp-run: $differ" "said in one line"
ok "as if the config did not tie it" same_logits untied apart
for command in "mem-estimate infer --json" "pp-partition plan --pp 2 --json" "tp-run program"; do
    run $command untied
    cp out got
    err_is "${command%% *}: $differ" "${command%% -*} says so"
    $command apart > want
    sed 's/"apart"/"untied"/' want > want.as
    ok "$command counts two" cmp want.as got
done
rm -rf cut whole
run tp-shard split -q --tp 2 --pp 2 untied cut
err_is "tp-shard: $differ" "split says so"
ok "each stage has its own" test "$(tp-shard show cut/rank-tp0-pp1.safetensors | grep -c wte.weight)" = 0
ok "its parts say the same" same_logits cut apart
run tp-shard merge -q cut whole
ok "and a merge gives the file back" cmp whole/model.safetensors untied/model.safetensors
ok "on a grid without stages, too" comes_back untied
tp-shard split -q --tp 3 "$both" equal
run tp-run logits --ids 1 -o l equal
err_empty "equal ones stay tied"
ok "and are one parameter" test "$(mem-estimate infer "$both" | head -n 1)" = \
    "$(mem-estimate infer equal | head -n 1 | sed "s,^equal,$both,")"

# ---- frequencies that rotary families compute

# with_frequencies MODEL DIR NAME...: DIR is MODEL with vectors of four frequencies
with_frequencies() {
    from=$1
    to=$2
    shift 2
    end=$(($(wc -c < "$from/model.safetensors") - 8 - $(od -An -tu8 -N8 "$from/model.safetensors")))
    script=
    for name; do
        script="$script; s/{/{\"$name\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[$end,$((end + 16))]},/"
        end=$((end + 16))
    done
    renamed "$from" "$to" "$script"
    for name; do
        printf 'abcdefghijklmnop' >> "$to/model.safetensors"
    done
}
for pair in llama-gqa:model.layers.0.self_attn falcon-one:transformer.h.1.self_attention \
    neox:gpt_neox.layers.0.attention phi:model.layers.0.self_attn gemma3:model.layers.1.self_attn; do
    model=${pair%%:*}
    with_frequencies "$models/$model" turned "${pair#*:}.rotary_emb.inv_freq" model.rotary_emb.inv_freq
    ok "$model ignores stored frequencies" same_logits turned "$models/$model"
    ok "$model: they come back" comes_back turned
done
with_frequencies "$models/gpt2-awkward" turned rotary_emb.inv_freq
run tp-shard split --tp 2 turned never
err_is "tp-shard: turned: tensor rotary_emb.inv_freq: no rule of family gpt2 matches it" \
    "a family that does not rotate has none"
with_frequencies "$models/llama-gqa" turned model.my_rotary_emb.inv_freq
run tp-shard split --tp 2 turned never
err_is "tp-shard: turned: tensor model.my_rotary_emb.inv_freq: no rule of family llama matches it" \
    "and no other name will do"

# ---- sinusoids that old files of M2M-100 store, and transformers computes

with_frequencies "$data/stacks/m2m-100" turned model.encoder.embed_positions.weights model.decoder.embed_positions.weights
ok "M2M-100 ignores stored sinusoids" same_logits turned "$data/stacks/m2m-100" --source-ids 4,5
ok "they come back" comes_back turned

# ---- angles that a model stores (encoders.t: they count); a RoFormer that decodes, so that it can be trained

renamed "$data/encoders/roformer" angled ''
sed -i.old 's/ForMaskedLM/ForCausalLM/; s/"is_decoder": false/"is_decoder": true/' angled/config.json
printf '{"ids":[%s]}\n' "$(cat "$data/encoders/roformer/ids")" > line.jsonl
for layout in "" "--pp 2"; do
    rm -rf trained whole
    # shellcheck disable=SC2086 # a list of words
    run tp-run train -q --data line.jsonl --seq 16 --steps 2 --lr 1e-2 --weight-decay 0.5 $layout -o trained angled
    status_is 0 "a model with stored angles learns${layout:+, $layout}"
    tp-shard merge -q trained/step-000002 whole
    ok "and leaves them as they were" \
        "$compare" whole/model.safetensors angled/model.safetensors 0 roformer.encoder.embed_positions.weight
done
run "$compare" whole/model.safetensors angled/model.safetensors 1e-3 roformer.embeddings.word_embeddings.weight
ok "while others change" test "$status" -ne 0
long=$(printf '7,%.0s' 1 2 3 4 5 6 7 8 9 10)
run tp-run logits --ids "$long$long${long}7" -o l angled
status_is 3 "no angles are stored beyond the last position"
err_is "tp-run: --ids: 31 tokens, the model takes 30" "which is said"

# own LINE MESSAGE: a family whose angles are LINE
own() {
    printf '{"family":"own","extends":"roformer","match":{"model_type":["roformer"]},
"forward":{"begin":{"stored":"%s"}}}' "$1" > own.json
    run tp-run program --family own.json angled
    status_is 3 "$1 are no angles"
    err_has "$2" "which is said"
}
own "embedding(ids, words)" "the table turns 6 columns, the value has 10"
own "first(concat(turned.cos, turned.sin))" "the rows differ"
done_testing
