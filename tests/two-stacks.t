#!/bin/sh
# two-stacks.t - encoder-decoders that are built like BART answer as in PyTorch's transformers
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

# answers TP... : the logits at each layout are those of transformers, and nearly one another's
answers() {
    for mesh; do
        tp-run logits --mesh "$mesh" --ids "$ids" --source-ids "$source" -o "$mesh".safetensors "$dir" &&
            "$compare" "$dir/expected.safetensors" "$mesh".safetensors 1e-4 logits &&
            "$compare" "$1".safetensors "$mesh".safetensors 1e-5 logits || return
    done
}

# says MESH...: so are the greedy ids, the last of which some are told to end with
says() {
    for mesh; do
        tp-run generate --mesh "$mesh" --ids "$source" --max-tokens 12 --json "$dir" > out &&
            [ "$(json out ids | tr -d '[] ')" = "$(list "$expected" ids 2)" ] || return
    done
}

scores() {
    for mesh; do
        tp-run score --mesh "$mesh" --input pair.json --json "$dir" > out &&
            near "$(json out nll)" "$nll" 1e-4 || return
    done
}

# cuts MESH...: cut and merged it is the same to the byte, and the parts answer as the whole
cuts() {
    for mesh; do
        tp-shard split -qf --mesh "$mesh" "$dir" cut && tp-shard merge -qf cut whole &&
            cmp "$dir/model.safetensors" whole/model.safetensors &&
            tp-run logits --ids "$ids" --source-ids "$source" -o cut.safetensors cut &&
            "$compare" tp=1.safetensors cut.safetensors 1e-5 logits || return
    done
}

for dir in "$data"/stacks/*/; do
    dir=${dir%/}
    model=${dir##*/}
    case $model in t5 | t5-gated | speech-*) continue ;; esac
    expected=$dir/expected.json
    ids=$(list "$expected" ids)
    source=$(list "$expected" source_ids)
    nll=$(sed -n 's/^ *"nll": *\([0-9.]*\).*/\1/p' "$expected")
    echo "{\"source_ids\":[$source],\"ids\":[${ids#*,}]}" > pair.json
    case $model in
    prophetnet* | longt5-sides*)
        shared=
        run tp-run logits --sp 2 --ids "$ids" --source-ids "$source" -o o.safetensors "$dir"
        status_is 1 "$model: a stream of predictions, or side rows, stay on one rank"
        err_is "tp-run: ranks cannot share the sequences of family ${model%%-*}" "which is said"
        ;;
    *) shared="sp=2 sp=4 tp=2,sp=2" ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    ok "$model: the logits on every layout are those of transformers" answers tp=1 tp=2 tp=3 tp=4 pp=2 tp=2,pp=3 $shared
    ok "$model: so are the greedy ids" says tp=1 tp=2,pp=2 ${shared:+sp=2,pp=2}
    ok "$model: and the likelihood" scores tp=1 tp=3
    ok "$model: cut, the parts answer as the whole, and merged they are it" cuts tp=2,pp=2 tp=4
done

# streams that the language does not allow
stream() {
    printf '{"family":"own","extends":"prophetnet","match":{"model_type":["prophetnet"]},"forward":{"decoder":{"a":"%s"}}}' "$1" > own.json
    run tp-run logits --family own.json --ids 7 --source-ids 5 -o o.safetensors "$data/stacks/prophetnet"
    status_is 3 "$1 is bad input"
    err_has "$2" "which is said"
}
stream "stream(linear(x, d_q) + d_q_b, k, v, linear(x, d_far) + d_far_b)" "biases by distance need 'far', above half of the buckets"
stream "stream(linear(x, d_q) + d_q_b, k, v, linear(x, d_up) + d_up_b, far = far)" "the heads, and their buckets"
stream "stream(linear(x, d_q) + d_q_b, k, v, linear(x, d_far) + d_far_b, x, far = far)" "a key of the query's own needs a value"
stream "stream(linear(x, d_q) + d_q_b, k, ck, linear(x, d_far) + d_far_b, far = far)" "expected the rows of all tokens"

# what generation_config.json asks for
bart=$data/stacks/bart
source=$(list "$bart/expected.json" source_ids)
own() {
    rm -rf own && cp -r "$bart" own && printf '%s\n' "$1" > own/generation_config.json
}
own '{"forced_bos_token_id": 17, "forced_eos_token_id": [5], "decoder_start_token_id": 9}'
run tp-run generate --ids "$source" --max-tokens 3 --json own
ok "a text begins and ends with the ids that the model forces" \
    grep -q '"prompt_ids":\[9\],"ids":\[17,[0-9]*,5\]' out
own '{"forced_eos_token_id": 2, "eos_token_id": 2, "max_length": 4}'
run tp-run generate --ids "$source" --json own
ok "also where max_length ends it" grep -q '"prompt_ids":\[2\],"ids":\[[0-9]*,[0-9]*,2\]' out
own '{"forced_eos_token_id": [5, 6]}'
run tp-run generate --ids "$source" own
status_is 3 "one of several ids cannot be forced"
run tp-run generate --ids "$source" --ignore-generation-config --max-tokens 2 --json own
status_is 0 "and need not be"

for file in source.spm vocab.json; do
    own '{}'
    : > own/$file
    run tp-run generate --prompt hello own
    status_is 3 "a tokenizer that is not read is refused"
    err_is "tp-run: own: no tokenizer.json, and $file is not read; give --ids" "by name"
done

# a source has its own length and vocabulary
run tp-run logits --ids 1,2 --source-ids "$source,$source" -o o "$bart"
status_is 3 "a source of more tokens than there are positions is refused"
err_is "tp-run: --ids: the source has 122 tokens, more than the model's 80" "and told"
run tp-run logits --ids 1,2 --source-ids 61 -o o "$data/stacks/fsmt-odd"
err_is "tp-run: --source-ids: id 61 is not in the vocabulary of 61" "an id beyond the source's vocabulary, too"
run tp-run logits --ids 1,60 --source-ids 60,60 -o o "$data/stacks/fsmt-odd"
err_is "tp-run: --ids: id 60 is not in the vocabulary of 59" "and one beyond the text's"

# no ring shares a source, so none is advised
run tp-run logits --tp 3 --sp 2 --ids 1,2 --source-ids 6,7 -o o "$data/stacks/bart-odd"
status_is 1 "more ranks than heads do not share a text"
err_is "tp-run: 2 ranks that share a sequence cannot exchange the 1 heads of a rank" "which is all that is told"

# a table of positions that no file stores is computed
printf '{"family": "unplaced", "extends": "pegasus", "match": {"model_type": ["pegasus"]}, "tensors": {"e_place": null, "d_place": null},
  "forward": {"begin": {"e_x": "sinusoid(embedding(source, embed_e) * embed_scale, place)"},
              "between": {"d_x": "sinusoid(embedding(ids, embed_d) * embed_scale, place)"}},
  "carry": ["*embed_positions.weight"]}\n' > unplaced.json
run tp-run logits --family unplaced.json --ids "$(list "$data/stacks/pegasus/expected.json" ids)" \
    --source-ids "$(list "$data/stacks/pegasus/expected.json" source_ids)" -o o "$data/stacks/pegasus"
ok "sinusoidal positions are those that are stored, but for their rounding to bf16" \
    "$compare" "$data/stacks/pegasus/expected.safetensors" o 3e-3 logits
done_testing
