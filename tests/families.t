#!/bin/sh
# families - tiny models of every family answer as PyTorch's transformers does, at every tp
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

# number FILE KEY [N]: the Nth number called KEY
number() {
    sed -n "s/^ *\"$2\": *\([-0-9.e]*\).*/\1/p" "$1" | sed -n "${3:-1}p"
}

# at_tp NAME "TP..." COMMAND...: passes when COMMAND, a function that is given the tp,
# succeeds for each
at_tp() {
    name=$1
    tps=$2
    shift 2
    for tp in $tps; do
        if ! "$@" "$tp" > at.out 2>&1; then
            fail "$name" "tp $tp: $(head -n 5 at.out)"
            return
        fi
    done
    pass "$name"
}

logits() {
    tp-run logits --tp "$1" --ids "$ids" -o "tp$1.safetensors" "$dir" &&
        "$compare" "$dir/expected.safetensors" "tp$1.safetensors" 1e-4 $outputs
}

typed() {
    # shellcheck disable=SC2046 # a list of words
    tp-run logits --tp "$1" --ids "$ids" --token-types "$(list "$expected" token_type_ids)" \
        -o typed.safetensors "$dir" &&
        "$compare" "$dir/expected.safetensors" typed.safetensors 1e-4 \
            $(for o in $outputs; do echo "typed.$o=$o"; done)
}

# half of what any two may differ by
like_one() {
    "$compare" tp1.safetensors "tp$1.safetensors" 5e-6 $outputs
}

greedy() {
    tp-run generate --json --tp "$1" --ids "$(list "$expected" prompt_ids)" --max-tokens 20 \
        "$dir" > greedy.out && got=$(json greedy.out ids | tr -d '[] ') &&
        echo "ids $got" && [ "$got" = "$(list "$expected" ids 2)" ]
}

likelihood() {
    echo "$ids" | tr ',' ' ' > ids.txt
    tp-run score --json --tp "$1" --ids-file ids.txt "$dir" > score.out &&
        cat score.out && near "$(json score.out nll)" "$(number "$expected" nll)" 1e-4 &&
        tp-run score --json --tp "$1" --window 7 --ids-file ids.txt "$dir" > score.out &&
        cat score.out && near "$(json score.out nll)" "$(number "$expected" nll 2)" 1e-4
}

for dir in "$data"/models/*/; do
    dir=${dir%/}
    model=${dir##*/}
    expected=$dir/expected.json
    [ -f "$dir/expected.safetensors" ] || continue
    ids=$(list "$expected" ids)
    case $model in
    bert-pooler) outputs="last_hidden_state pooler_output" ;;
    bert-* | roberta-*) outputs="last_hidden_state logits" ;;
    *) outputs=logits ;;
    esac
    heads=$(number "$dir/config.json" num_attention_heads)
    [ -n "$heads" ] || heads=$(number "$dir/config.json" n_head)
    [ -n "$heads" ] || heads=$(number "$dir/config.json" n_heads)
    [ -n "$heads" ] || heads=$(number "$dir/config.json" num_heads)
    [ -n "$heads" ] || heads=$(number "$dir/config.json" attention_heads)
    all=$(seq -s ' ' "$heads")
    rm -f tp*.safetensors
    at_tp "$model: the outputs at tp 1 to $heads are those of transformers" "$all" logits
    at_tp "$model: the outputs do not depend on tp" "$all" like_one
    case $model in
    bert-* | roberta-*)
        at_tp "$model: token types count as in transformers" "1 $heads" typed
        ;;
    *)
        at_tp "$model: the likelihood is that of transformers, in windows too" "1 2 $heads" \
            likelihood
        at_tp "$model: the greedy ids are those of transformers" "1 2 $heads" greedy
        ;;
    esac
    run tp-run logits --tp $((heads + 1)) --ids "$ids" -o too.safetensors "$dir"
    status_is 1 "$model: tp $((heads + 1)) is one too many"
done

known=$(tp-shard families | wc -l)
ok "the README says how many families there are" grep -q " $known families " "$top_srcdir/README.md"
run tp-shard families --table llama
status_is 2 "--table lists all"

done_testing
