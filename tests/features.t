#!/bin/sh
# features.t - models that read features, such as frames of sound, answer as in PyTorch's transformers
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

answers() {
    for mesh; do
        tp-run logits --mesh "$mesh" --input pair.json -o "$mesh".safetensors "$dir" &&
            "$compare" "$dir/expected.safetensors" "$mesh".safetensors 1e-4 logits &&
            "$compare" tp=1.safetensors "$mesh".safetensors 1e-5 logits || return
    done
}

says() {
    for mesh; do
        tp-run generate --mesh "$mesh" --input source.json --max-tokens 12 --json "$dir" > out &&
            [ "$(json out ids | tr -d '[] ')" = "$(list "$expected" ids 2)" ] || return
    done
}

scores() {
    for mesh; do
        tp-run score --mesh "$mesh" --input text.json --json "$dir" > out &&
            near "$(json out nll)" "$(sed -n 's/^ *"nll": *\([0-9.]*\).*/\1/p' "$expected")" 1e-4 || return
    done
}

# cuts MESH...: cut and merged it is the same to the byte, and the parts answer as the whole
cuts() {
    for mesh; do
        tp-shard split -qf --mesh "$mesh" "$dir" cut && tp-shard merge -qf cut whole &&
            cmp "$dir/model.safetensors" whole/model.safetensors &&
            tp-run logits --input pair.json -o cut.safetensors cut &&
            "$compare" tp=1.safetensors cut.safetensors 1e-5 logits || return
    done
}

for dir in "$data"/stacks/*/features.safetensors; do
    dir=${dir%/*}
    model=${dir##*/}
    expected=$dir/expected.json
    ids=$(list "$expected" ids)
    echo "{\"features\":\"$dir/features.safetensors\"}" > source.json
    echo "{\"features\":\"$dir/features.safetensors\",\"ids\":[$ids]}" > pair.json
    echo "{\"features\":\"$dir/features.safetensors\",\"ids\":[${ids#*,}]}" > text.json
    ok "$model: the logits on every layout are those of transformers" answers tp=1 tp=2 tp=3 tp=4 pp=2 tp=2,pp=3 dp=2
    ok "$model: so are the greedy ids" says tp=1 tp=2,pp=2
    ok "$model: and the likelihood" scores tp=1 tp=3
    ok "$model: cut, the parts answer as the whole, and merged they are it" cuts tp=2,pp=2 tp=4
    run tp-run logits --sp 2 --input pair.json -o o "$dir"
    status_is 1 "$model: ranks do not share a source of features"
    err_is "tp-run: ranks cannot share the sequences of family speech_to_text" "in one line"
done

dir=$data/stacks/speech-to-text-odd
# several sources of different lengths in one step, in numbers and in a file
frames() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) { printf "%s[", i ? "," : "";
        for (k = 0; k < 10; k++) printf "%s%.4f", k ? "," : "", sin(i * 0.7 + k); printf "]" } }'
}
for n in 1 2 3 4 5 9 30; do
    echo "{\"features\":[$(frames $n)],\"ids\":[2,5,7]}"
done > lines.json
tp-run logits --input lines.json -o many.safetensors "$dir"
i=0
while read -r line; do
    echo "$line" > line.json
    tp-run logits --input line.json -o alone.safetensors "$dir"
    ok "several sources do not mix: $i" "$compare" alone.safetensors many.safetensors 1e-6 "logits=$i.logits"
    i=$((i + 1))
done < lines.json

refuses() {
    echo "$1" > bad.json
    run tp-run logits --input bad.json -o o "$dir"
    status_is 3 "$3"
    err_is "tp-run: bad.json:1: $2" "$3: which is told"
}
refuses '{"ids":[2]}' 'family speech_to_text reads features: give --input lines such as {"features":"FILE.safetensors"}, or --input-tensors' \
    "a text without features is refused"
refuses '{"ids":[2],"features":[[1,2]]}' "'features' is [1, 2], the model takes [frames, 10] f32" "a frame of another size"
refuses '{"ids":[2],"features":[]}' "'features' is empty" "no frame"
refuses '{"ids":[2],"features":3}' "'features' is neither a file nor a list of frames" "a number"
refuses "{\"ids\":[2],\"features\":\"$dir/model.safetensors\"}" \
    "$dir/model.safetensors: $(tp-shard show --json "$dir/model.safetensors" | grep -c '"type":"tensor"') tensors, one is needed" "a file of many tensors"
refuses '{"ids":[2],"features":"none"}' "none: missing" "a file that does not exist"
refuses "{\"ids\":[2],\"features\":\"$data/stacks/speech-to-text/features.safetensors\"}" \
    "$data/stacks/speech-to-text/features.safetensors: 'features' is [53, 6] F32, the model takes [frames, 10] f32" \
    "features of another width"
echo '{"ids":[2],"features":[[1,2]]}' > bad.json
run tp-run logits --input bad.json -o o "$bard"
status_is 3 "a model of text reads no features"
err_is "tp-run: bad.json:1: family llama has no 'features'" "which is told"
run tp-run generate --ids 1,2 "$dir"
status_is 3 "generate needs features, too"
done_testing
