#!/bin/sh
# encoders - tiny encoders of every family and head answer as PyTorch's transformers does
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

for dir in "$data"/encoders/*/; do
    dir=${dir%/}
    model=${dir##*/}
    outputs=$(head -c 2000 "$dir/expected.safetensors" | tr -cd '[:print:]' | grep -o '"[a-z_]*":{"dtype' | cut -d'"' -f2)
    meshes="tp=1 tp=3 tp=4 tp=2,pp=2"
    case $model in
    mpnet* | deberta* | xlnet*) ;; # biases by distance are not shared over tokens
    mobilebert* | convbert* | funnel* | longformer-class | longformer-answers | longformer-choice)
        run tp-run logits --sp 2 --ids "$(cat "$dir/ids")" -o o.safetensors "$dir"
        status_is 1 "$model: tokens that read their neighbours stay on one rank"
        err_is "tp-run: ranks cannot share the sequences of family ${model%-*}" "which is said"
        ;;
    *) meshes="$meshes sp=2" ;;
    esac
    if [ -f "$dir/line.json" ]; then # boxes, or types of cells
        set -- --input "$dir/line.json"
    else
        set -- --ids "$(cat "$dir/ids")"
    fi
    for mesh in $meshes; do
        run tp-run logits --mesh "$mesh" "$@" -o o.safetensors "$dir"
        # shellcheck disable=SC2086 # a list of words
        ok "$model: $(echo $outputs) at $mesh" "$compare" "$dir/expected.safetensors" o.safetensors 1e-4 $outputs
    done
    err_empty "$model: every key of its config is known"
    rm -rf cut whole
    run tp-shard split -qf --mesh tp=3,pp=2 "$dir" cut
    run tp-shard merge -qf cut whole
    ok "$model: is cut and merged to the byte" cmp "$dir/model.safetensors" whole/model.safetensors
done

run tp-run logits --sp 2 --ids 5,6 -o o.safetensors "$data/encoders/xlnet"
status_is 1 "ranks do not share a text whose scores are by distance"
err_is "tp-run: ranks cannot share the sequences of family xlnet" "in one line"
run tp-run generate --ids 5,6 "$data/encoders/xlnet"
status_is 3 "what sees both directions generates nothing"

# boxes and types of cells that cannot be used
bad() {
    printf '%s\n' "$2" > bad.json
    run tp-run logits --input bad.json -o o.safetensors "$data/$1"
    status_is 3 "$3"
    err_has "$4" "which is said"
}
bad encoders/layoutlm '{"ids":[5,6],"bbox":[[0,0,1,1]]}' "a box is missing" "'bbox' has 1 elements for 2 tokens"
bad encoders/layoutlm '{"ids":[5],"bbox":[[0,0,99,1]]}' "a box lies beyond the page" "'bbox' has 99, which is not below the model's 9"
bad encoders/layoutlm '{"ids":[5],"bbox":[[4,0,3,1]]}' "a box has no width" "a box ends before it begins"
bad encoders/tapas '{"ids":[5],"token_types":[[0,0,0]]}' "a token has too few types" "'token_types' must have 7 numbers for each token"
bad encoders/camembert '{"ids":[5],"bbox":[[0,0,1,1]]}' "a model has no boxes" "family roberta has no 'bbox'"
own() {
    printf '{"family":"own","extends":"layoutlm","match":{"model_type":["layoutlm"]},"symbols":{"marks":"%s"}}' "$1" > own.json
    printf '%s\n' "$2" > bad.json
    run tp-run logits --family own.json --input bad.json -o o.safetensors "$data/encoders/layoutlm"
    status_is 3 "a family with $1 marks is bad input"
    err_is "tp-run: bad.json:1: family own has $1 marks, $3" "which is said"
}
own 100000 "{\"ids\":[5],\"token_types\":[[$(seq -s, 100000)]]}" "'token_types' needs 1 to 7"
own 8 '{"ids":[5],"bbox":[[0,0,1,1]]}' "'bbox' needs 6 to 7"
own 4 '{"ids":[5],"bbox":[[0,0,1,1]]}' "'bbox' needs 6 to 7"
own -1 '{"ids":[5],"token_types":[[]]}' "'token_types' needs 1 to 7"

# lines that the language does not allow
line() {
    printf '{"family":"own","extends":"convbert","match":{"model_type":["convbert"]},"forward":{"layer":{"%s":"%s"}}}' "$1" "$2" > own.json
    run tp-run logits --family own.json --ids 5,6 -o o.safetensors "$data/encoders/convbert"
    status_is 3 "$2 is bad input"
    err_has "$3" "which is said"
}
line q "shift(linear(x, wq) + bq, by = 0.5)" "'by' is a whole number of tokens"
line q "pool(linear(x, wq) + bq)" "'pooled' is at least 1"
line q "unpool(linear(x, wq) + bq, pooled = 21)" "'pooled' is a number of times, at most 20"
line p "convolve(x, wq)" "expected a tensor of 3 axes"
line c "dynamic(linear(x, conv) + conv_b, x)" "the heads, and an odd number of taps"
line s "linear(view(p*q, as = hidden), taps_w) + taps_b" "the numbers of columns: heads*head_dim and hidden differ"
line y "layernorm(x + linear(join(a, p*q), wo) + bo, ln_a, ln_a_b, eps)" "expected the name of a value of one segment"
line k "repeat(parts, m = linear(x, wk) + bk : m)" "'parts' is no capture"
line k "(linear(x, wk) + bk)*ln_a" "the factors of the columns"
line a "attention(q, k, v, causal)" "a causal model cannot read the rows beside a token's own"

done_testing
