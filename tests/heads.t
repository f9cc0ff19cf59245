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

done_testing
