#!/bin/sh
# keys - what the programs make of each key of config.json and generation_config.json
. "${top_srcdir:?}/tests/lib.sh"

# with MODEL KEY VALUE: the model of tests/data/models as ./m, KEY of its config.json set
with() {
    rm -rf m && mkdir m && cp "$data/models/$1"/*.safetensors m &&
        awk -v k="\"$2\"" -v v="$3" '$1 == k ":" { next }
            { print } NR == 1 { print "  " k ": " v "," }' "$data/models/$1/config.json" > m/config.json
}
logits() {
    run tp-run logits --ids 3,4,5 -o l.safetensors "$@" m
}

# unknown keys
with llama-gqa unsloth_version '"2026.1"'
logits
status_is 0 "a key that nobody knows does not stop a model"
err_is "tp-run: m/config.json: not known to family llama and ignored: unsloth_version" \
    "it is named in a warning"
logits --tp 2
err_lines 1 "two ranks warn once"
logits -q
err_empty "-q leaves the warning out"
run mem-estimate infer m
err_has "ignored: unsloth_version" "mem-estimate warns as well"
run pp-partition plan --pp 2 m
err_has "ignored: unsloth_version" "and pp-partition"
with llama-gqa torch_dtype '"float32"'
logits
err_empty "types, versions and the like are no cause for a warning"
with llama-gqa rope_theta 10000
logits
err_empty "nor are names that transformers converts"

# older and wider names of rotary scaling
factors='"short_factor":[1,1.5],"long_factor":[2,3],"original_max_position_embeddings":2'
with llama-gqa rope_scaling "{\"rope_type\":\"longrope\",$factors}"
logits
cp l.safetensors want
with llama-gqa rope_scaling "{\"type\":\"su\",$factors}"
logits
status_is 0 "su is longrope's first name"
ok "and the same" cmp want l.safetensors
with llama-gqa rope_scaling '{"type":"mrope","mrope_section":[1,1]}'
logits
status_is 0 "mrope runs a text"
err_is "tp-run: m/config.json: not known to family llama and ignored: rope_scaling.mrope_section" "with a warning"
tp-run logits --ids 3,4,5 -o want "$data/models/llama-gqa"
ok "as the plain table" cmp want l.safetensors
with llama-gqa rope_scaling '{"rope_type":"spiral","factor":2}'
logits
err_has "rotary scaling 'spiral' is not known (linear, dynamic, llama3, yarn, longrope, proportional, mrope)" \
    "others are refused, and the known ones named"

# keys of the class that the family does not read
with gemma3 use_bidirectional_attention true
logits
status_is 3 "a key that changes the outputs and is not read is refused"
err_is "tp-run: m/config.json:2:34: family gemma3 does not know use_bidirectional_attention = true; the default is null" \
    "with key, value and default"
run mem-estimate infer m
status_is 0 "mem-estimate counts such a model"
err_has "ignored: use_bidirectional_attention" "and says what it leaves out"
run tp-shard split -q --tp 1 m cut
status_is 0 "tp-shard cuts it"
run tp-run logits --ids 3,4,5 -o l.safetensors cut
status_is 3 "what was cut is refused as well"
printf '%s\n' '{ "family": "own", "extends": "gemma3", "config": { "use_bidirectional_attention": null } }' > own.json
logits --family own.json
status_is 0 "a family file of one's own passes over it"
with llama-gqa rope_interleaved true
printf '%s\n' '{ "family": "own", "extends": "llama", "config": { "rope_interleaved": { "is": [false], "changes": "costs" } } }' > own.json
run mem-estimate infer --family own.json m
status_is 3 "mem-estimate refuses what changes caches"
run tp-shard split --family own.json -q --tp 2 m cut2
status_is 0 "which no cut depends on"
with bert-mlm add_cross_attention true
run tp-shard split -q --tp 2 m cut3
status_is 3 "what changes the tensors is refused by tp-shard"
err_has "add_cross_attention = true" "by name"

# quantized weights
with llama-gqa quantization_config '{ "quant_method": "quanto", "weights": "int8" }'
logits
status_is 3 "quantized weights are not run"
run mem-estimate infer m
status_is 3 "nor counted when their form is not known"
err_has "quanto" "the method is named"
run tp-shard split -q --tp 2 m cut4
status_is 3 "nor cut"
with llama-gqa quantization_config '{ "quant_method": "awq", "version": "gemv" }'
run tp-shard split -q --tp 2 m cut5
status_is 3 "AWQ in another layout is not cut"
err_has "'gemv'" "the layout is named"

with opt num_attention_heads 7
run tp-run logits --ids 3 -o o m
status_is 3 "heads that do not divide the width are refused"
err_is "tp-run: m/config.json: hidden 24 is no multiple of heads 7" "with both numbers"

# generation_config.json
with llama-gqa use_cache true
generate() {
    printf '%s\n' "$1" > m/generation_config.json
    shift
    run tp-run generate --json --ids 3,4,5 "$@" m
}
for setting in '"num_beam_groups": 2' '"guidance_scale": 1.5' '"watermarking_config": { "bias": 2 }' \
    '"max_time": 9'; do
    generate "{ $setting }"
    key=${setting##*, }
    key=${key%%:*}
    if [ "$status" -eq 3 ] && grep -qF "follow $(echo "$key" | tr -d '"') =" err; then
        pass "generate refuses $setting"
    else
        fail "generate refuses $setting" "status $status" "$(cat err)"
    fi
done
generate '{ "forced_eos_token_id": [1, 2] }'
err_is "tp-run: m/generation_config.json: forced_eos_token_id has several ids, of which none is the one" "one id alone is forced"
while IFS='|' read -r setting options; do
    generate "{ $setting }" --max-tokens 9
    json out ids > by-file
    # shellcheck disable=SC2086
    generate '{}' --max-tokens 9 $options
    ok "$setting is $options" test "$(cat by-file)" = "$(json out ids)"
    generate "{ $setting }" --max-tokens 9 --ignore-generation-config
    cp out plain
done <<'END'
"repetition_penalty": 1.5|--repetition-penalty 1.5
"no_repeat_ngram_size": 1|--no-repeat-ngram 1
"suppress_tokens": [7, 8]|--suppress-tokens 7,8
"min_new_tokens": 9|--min-tokens 9
"num_beams": 4, "early_stopping": "never"|--beams 4 --early-stopping never
"do_sample": true, "min_p": 0.1, "top_k": null|--temperature 1 --min-p 0.1 --top-k 50
END
generate '{ "num_beam_groups": 2 }' --ignore-generation-config --max-tokens 3
status_is 0 "--ignore-generation-config passes over it"
for setting in '"repetition_penalty": 1.0' '"suppress_tokens": null' '"bad_words_ids": []' '"min_p": 0.1' \
    '"num_beams": 1, "length_penalty": 2, "early_stopping": true'; do
    generate "{ $setting }" --max-tokens 3
    if [ "$status" -eq 0 ] && [ ! -s err ]; then
        pass "generate takes $setting, which changes nothing"
    else
        fail "generate takes $setting, which changes nothing" "status $status" "$(cat err)"
    fi
done
generate '{ "wonder": 1 }' --max-tokens 3
err_is "tp-run: m/generation_config.json: not known and ignored: wonder" "unknown settings are warned of"

length() {
    json out ids | tr ',' '\n' | wc -l
}
generate '{ "eos_token_id": 999, "max_new_tokens": 5, "max_length": 4 }'
ok "max_new_tokens is the default of --max-tokens" test "$(length)" -eq 5
generate '{ "eos_token_id": 999, "max_length": 7 }'
ok "max_length counts the prompt" test "$(length)" -eq 4
generate '{ "eos_token_id": 999, "max_length": 7 }' --max-tokens 6
ok "--max-tokens comes before both" test "$(length)" -eq 6
generate '{ "max_length": 3 }'
status_is 3 "a prompt as long as max_length is refused"
err_has "give --max-tokens" "with the way out"

generate '{ "eos_token_id": 999, "do_sample": true, "temperature": 5.0, "top_k": 0 }' --max-tokens 9 --seed 3
cp out sampled
generate '{ "eos_token_id": 999 }' --max-tokens 9 --seed 3 --temperature 5 --top-k 0
ok "do_sample and temperature are what the options would be" \
    test "$(json out ids)" = "$(json sampled ids)"
generate '{ "eos_token_id": 999, "temperature": 5.0, "top_k": 0 }' --max-tokens 9 --seed 3
cp out greedy
ok "without do_sample the rest is not followed" test "$(json out ids)" != "$(json sampled ids)"
generate '{ "eos_token_id": 999, "do_sample": true, "temperature": 5.0 }' --max-tokens 9 --seed 3 --temperature 0
ok "an option comes before the file" test "$(json out ids)" = "$(json greedy ids)"
rm m/generation_config.json
with llama-gqa repetition_penalty 1.3
run tp-run generate --json --ids 3,4,5 --max-tokens 3 m
cp out scaled
with llama-gqa use_cache true
run tp-run generate --json --ids 3,4,5 --max-tokens 3 --repetition-penalty 1.3 m
ok "without the file the same keys of config.json count" test "$(json out ids)" = "$(json scaled ids)"

# what a family of the user's own says of a key: its members @ the config's line @ status @ what is said, if anything
model=$data/models/llama-gqa
rm -rf m && mkdir m && cp "$model"/*.safetensors m
while IFS=@ read -r members line wanted message; do
    printf '{"family":"own","extends":"llama","match":{"model_type":["own"]},\n%s}\n' "$members" > own.json
    awk -v l="$line" '{ print } NR == 1 && l { print "  " l "," }' "$model/config.json" > m/config.json
    logits --family own.json
    status_is "$wanted" "$members with $line"
    if [ -n "$message" ]; then err_is "tp-run: $message" "$message"; else err_empty "without a word"; fi
done << 'END'
"config":{"more":[[],{}]}@"more":[]@0@
"config":{"more":[[],{}]}@"more":{}@0@
"config":{"more":[[],{}]}@"more":[1]@3@m/config.json:2:10: family own does not know more = [1]; the default is []
"config":{"more":[{}]}@"more":{"a":1}@3@m/config.json:2:10: family own does not know more = {"a":1}; the default is {}
"config":{"more":[[],{}]}@"more":"x"@3@m/config.json:2:10: family own does not know more = "x"; the default is []
"config":{"more":[1]}@"more":"1"@3@m/config.json:2:10: family own does not know more = "1"; the default is 1
"config":{"more":["1"]}@"more":1@3@m/config.json:2:10: family own does not know more = 1; the default is "1"
"config":{"more":[null,false]}@"more":true@3@m/config.json:2:10: family own does not know more = true; the default is null
"config":{"more":[1e999]}@"more":1@3@m/config.json:2:10: family own does not know more = 1; the default is 1e999
"config":{"more":1}@"more":1@3@own.json:2:18: expected a list of values, or a condition
"config":{"more":[]}@"more":1@3@own.json:2:18: expected a list of values, or a condition
"config":{"more":{}}@"more":1@3@own.json:2:18: expected a list of values, or a condition
"config":{"more":{"is":"more == nosuch("}}@"more":1@3@own.json:2:33: no function of that name (min max sqrt pow floor ceil log len ends given)
"config":{"more":{"is":"more == 1"}}@"more":1@0@
"config":{"more":{"is":"more == 1"}}@"more":2@3@m/config.json:2:10: family own does not know more = 2
"config":{"more":{"is":[1],"changes":"numbers"}}@"more":2@3@m/config.json:2:10: family own does not know more = 2; the default is 1
"config":{"more":{"is":[1],"changes":"nothing"}}@"more":2@0@m/config.json: not known to family own and ignored: more
"config":{"more":{"is":[1],"changes":3}}@"more":2@3@m/config.json:2:10: family own does not know more = 2; the default is 1
"symbols":{"extra":"more.x + 1e-5 + 2E+3 + 3.5"}@"more":{"x":1,"y":2}@0@m/config.json: not known to family own and ignored: more.y
"forward":{"layer":{"q":{"line":"rope(linear(h, wq), rot)","when":"more.x > 1e-3"}}}@"more":{"x":1}@0@
"forward":{"layer":{"q":{"line":"rope(linear(h, wq), rot)","when":"more == 'x"}}}@"more":"x"@3@own.json:2:76: the word has no closing quote
"symbols":{"a":"b.x","b":"c.x","c":"d.x","d":"e.x","e":"f.x","f":"g.x","g":"h.x","h":"i.x","i":"j.x","j":"k.x"}@"more":2@0@m/config.json: not known to family own and ignored: more
END

# public models
cut -f 4 "$data/configs.tsv" > configs
while IFS= read -r line; do
    printf '%s\n' "$line" > config.json
    mem-estimate infer config.json 2>> said > /dev/null
done < configs
ok "the configs of $(grep -c . configs) public models raise no warning and no refusal" test ! -s said

done_testing
