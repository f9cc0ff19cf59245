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
bad encoders/layoutlm '{"ids":[5,6],"bbox":[[0,0,1,1]]}' "a box is missing" "'bbox' is [1, 4], the model takes [2, 4] i32"
bad encoders/layoutlm '{"ids":[5],"bbox":[[0,0,99,1]]}' "a box lies beyond the page" "'bbox' has 99, which is not below the model's 9"
bad encoders/layoutlm '{"ids":[5],"bbox":[[4,0,3,1]]}' "a box has no width" "a box ends before it begins"
bad encoders/layoutlm '{"ids":[5],"bbox":[[0,0,1]]}' "a box has three numbers" "'bbox' is [1, 3], the model takes [tokens, 4] i32"
bad encoders/layoutlm '{"ids":[5],"bbox":[[0,0,1,0.5]]}' "a box has a fraction" "'bbox' has 0.5, which is no whole number from 0"
bad encoders/tapas '{"ids":[5],"token_types":[[0,0,0]]}' "a token has too few types" "'token_types' is [1, 3], the model takes [tokens, 7] i32"
bad encoders/tapas '{"ids":[5],"token_types":[0]}' "a token has one type" "'token_types' is [1], the model takes [tokens, 7] i32"
bad encoders/camembert '{"ids":[5],"bbox":[[0,0,1,1]]}' "a model has no boxes" "family roberta has no 'bbox'"
bad encoders/longformer '{"ids":[5],"global_attention_mask":[1]}' "a head without global tokens is told some" "this model does not read 'global_attention_mask'"
tp-run logits --ids 5,6,7,8 -o given.safetensors "$data/encoders/longformer-class"
echo '{"ids":[5,6,7,8],"global_attention_mask":[1,0,0,0]}' > mask.json
tp-run logits --input mask.json -o mask.safetensors "$data/encoders/longformer-class"
ok "global tokens may be given, which are else the first one" cmp given.safetensors mask.safetensors
echo '{"ids":[5,6,7,8],"global_attention_mask":[0,1,0,1]}' > mask.json
tp-run logits --input mask.json -o mask.safetensors "$data/encoders/longformer-class"
cmp given.safetensors mask.safetensors > o 2>&1
ok "others count" test $? -eq 1
inputs() {
    printf '{"family":"own","extends":"layoutlm","match":{"model_type":["layoutlm"]},"inputs":{%s}}' "$1" > own.json
    run tp-run logits --family own.json --ids 5 -o o.safetensors "$data/encoders/layoutlm"
    status_is 3 "an input that is $1 is bad input"
    err_has "$2" "which is said"
}
inputs '"far":["tokens","4"]' 'expected [rows, columns, type, { options }]'
inputs '"far":["tokens","4","f16"]' 'a type is i32 or f32'
inputs '"far":["tokens","none","f32"]' "'none'"
inputs '"far":["tokens","4","f32",{"below":"3"}]' 'only whole numbers have limits'
inputs '"far":["tokens","1","i32",{"otherwise":"7"}]' 'expected how a column of whole numbers is filled'
inputs '"far":["tokens","1","i32",{"otherwise":"'"'alike'"'","of":"near"}]' '"of" names an input before this one'
inputs '"ids":["tokens","1","i32"]' "the engine makes 'ids'"
inputs '"far":["tokens","1","i32",{"over":"3"}]' "unknown key 'over' of an input"

# lines that the language does not allow
line() {
    printf '{"family":"own","extends":"convbert","match":{"model_type":["convbert"]},"forward":{"layer":{"%s":"%s"}}}' "$1" "$2" > own.json
    run tp-run logits --family own.json --ids 5,6 -o o.safetensors "$data/encoders/convbert"
    status_is 3 "$2 is bad input"
    err_has "$3" "which is said"
}
line q "shift(linear(x, wq) + bq, by = 0.5)" "'by' is a whole number of tokens"
line q "pool(linear(x, wq) + bq)" "attention needs the rows of all tokens"
line q "unfold(linear(x, wq) + bq, reach, stride = 0)" "'stride' and 'before' are numbers of rows"
line q "pool(linear(x, wq) + bq, rows = table)" "there are such rows already, or too many kinds"
line q "embedding(ids.1, words)" "'ids' has 1 columns, from 0 on"
line p "convolve(x, wq)" "expected a tensor of 3 axes"
line c "dynamic(linear(x, conv) + conv_b, x)" "the heads, and an odd number of taps"
line s "linear(view(p*q, as = hidden), taps_w) + taps_b" "the numbers of columns: heads*head_dim and hidden differ"
line y "layernorm(x + linear(join(a, p*q), wo) + bo, ln_a, ln_a_b, eps)" "expected the name of a value of one segment"
line k "repeat(parts, m = linear(x, wk) + bk : m)" "'parts' is no capture"
line k "(linear(x, wk) + bk)*ln_a" "the factors of the columns"
line a "attention(q, k, v, causal)" "a causal model cannot read the rows beside a token's own"

done_testing
