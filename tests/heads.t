#!/bin/sh
# heads - decoders without the head of a language model answer as transformers does
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

for dir in "$data"/heads/*/; do
    dir=${dir%/}
    model=${dir##*/}
    output=logits
    case $model in *-bare) output=last_hidden_state ;; esac
    for tp in 1 2 3; do
        run tp-run logits --tp "$tp" --ids "$(cat "$dir/ids")" -o o.safetensors "$dir"
        ok "$model: $output at tp $tp is that of transformers" \
            "$compare" "$dir/expected.safetensors" o.safetensors 1e-4 "$output"
    done
    run tp-run logits --pp 2 --ids "$(cat "$dir/ids")" -o o.safetensors "$dir"
    ok "$model: and over two stages" \
        "$compare" "$dir/expected.safetensors" o.safetensors 1e-4 "$output"
    run tp-run generate --ids 3,4 "$dir"
    status_is 3 "$model: generates no text"
    err_has "no language model head" "$model: for this reason"
    echo 3 4 5 > ids
    run tp-run score --ids-file ids "$dir"
    status_is 3 "$model: scores none"
    run tp-shard split -q --tp 2 "$dir" "$model.2"
    run tp-shard merge -q "$model.2" "$model.1"
    ok "$model: is cut and merged" cmp "$dir/model.safetensors" "$model.1/model.safetensors"
    run mem-estimate infer "$dir"
    status_is 0 "$model: is counted"
done

# a class without a head, on a file that has one
cp -r "$data/models/gpt2-untied" bare && sed 's/GPT2LMHeadModel/GPT2Model/' "$data/models/gpt2-untied/config.json" > bare/config.new
mv -f bare/config.new bare/config.json
run tp-run logits --ids 3,4,5 -o o.safetensors bare
status_is 0 "a GPT2Model is run on a file that also has a head"
ok "which gives hidden states" "$compare" o.safetensors o.safetensors 0 last_hidden_state
run tp-shard split -q --tp 2 bare bare.2
run tp-shard merge -q bare.2 bare.1
ok "and keeps the head, to the byte" cmp bare/model.safetensors bare.1/model.safetensors

done_testing
