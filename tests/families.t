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

# experts TP: over ep 2 the outputs and the greedy ids are those of transformers
experts() {
    tp-run logits --tp "$1" --ep 2 --ids "$ids" -o ep.safetensors "$dir" &&
        "$compare" "$dir/expected.safetensors" ep.safetensors 1e-4 $outputs &&
        "$compare" tp1.safetensors ep.safetensors 5e-6 $outputs &&
        tp-run generate --json --tp "$1" --ep 2 --ids "$(list "$expected" prompt_ids)" --max-tokens 20 \
            "$dir" > greedy.out && [ "$(json greedy.out ids | tr -d '[] ')" = "$(list "$expected" ids 2)" ]
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

turn=0
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
    most=$heads # ranks; a model without heads is sharded by its channels
    [ -n "$heads" ] || heads=3
    all=$(tps "$heads")
    case $all in 1*) ;; *) all="1 $all" ;; esac # with which others are compared
    rm -f tp*.safetensors
    at_tp "$model: the outputs at tp $all are those of transformers" "$all" logits
    at_tp "$model: the outputs do not depend on tp" "$all" like_one
    case $model in
    bert-* | roberta-*)
        at_tp "$model: token types count as in transformers" "1 $heads" typed
        ;;
    *)
        # one rank and all ranks in turns
        turn=$((turn + 1))
        [ $((turn % 2)) = 0 ] && some=1 || some=$heads
        [ -z "${LONG-}" ] || some="1 2 $heads"
        at_tp "$model: the likelihood is that of transformers, in windows too" "$some" likelihood
        at_tp "$model: the greedy ids are those of transformers" "2 ${LONG:+1 $heads}" greedy
        ;;
    esac
    if grep -q '"[a-z_]*experts": \([2-9]\|1[0-9]\)' "$dir/config.json"; then
        at_tp "$model: experts on two ranks answer as on one" "1 2" experts
    fi
    [ -n "$most" ] || continue
    run tp-run logits --tp $((heads + 1)) --ids "$ids" -o too.safetensors "$dir"
    status_is 1 "$model: tp $((heads + 1)) is one too many"
done

# carried numbers with which the forward pass computes: beta of xIELU
cp -r "$data/models/apertus" bent && chmod -R u+w bent
at=$(($(od -An -N8 -tu8 bent/model.safetensors) + 8 + $(tr -cd '[:print:]' < bent/model.safetensors |
    sed 's/.*"model.layers.1.mlp.act_fn.beta":{[^}]*"data_offsets":\[\([0-9]*\).*/\1/')))
printf '\200\076' | dd of=bent/model.safetensors bs=1 seek="$at" conv=notrunc 2> dd.out # 0.25
run tp-run logits --ids 1,2 -o o bent
status_is 3 "another beta of xIELU than 0.5 is refused"
err_is "tp-run: bent: tensor model.layers.1.mlp.act_fn.beta is 0.25, but family apertus computes with 0.5" "and told"
tp-shard split -q --tp 2 bent cut
run tp-run logits --ids 1,2 -o o cut
status_is 3 "in shard files, too"

mkdir nested && printf '{"model_type":"other","text_config":%s}' "$(cat "$data/models/llama4/config.json")" > nested/config.json
cp "$data/models/llama4/model.safetensors" nested
run tp-run logits --ids 1,2 -o o nested
status_is 3 "a text model inside an unknown one is not read"
err_is "tp-run: nested/config.json: no family matches model_type 'other', a model with more than its text_config of type 'llama4_text'; a text model alone can be read" "which is told"

echo '{"ids":[1,2,3,4,5,6,7,8,9,10]}' > ids.jsonl
sed 's/"router_jitter_noise": *[0-9.]*/"router_jitter_noise": 0/' "$data/models/phimoe/config.json" > still.json
run tp-run train -q --data ids.jsonl --pack none --seq 8 --steps 1 --config still.json -o trained "$data/models/phimoe"
status_is 1 "a model whose router is another one in training is not trained"
err_is "tp-run: family phimoe: in training SparseMixer draws experts at random, which is not computed; the model cannot be trained" "which is told"
known=$(tp-shard families | wc -l)
ok "the README says how many families there are" grep -q " $known families " "$top_srcdir/README.md"
run tp-shard families --json
tp-shard families --table | tail -n +2 > rows
ok "families --json has a line for each" test "$(grep -c '^{"type":"family","name":' out)" -eq "$(wc -l < rows)"
sed 's/^{"type":"family","name":"\([^"]*\)","model_types":\[\(.*\)\],"parallelformers":\[\(.*\)\],"axes":\[\(.*\)\],"runs":\([a-z]*\),"experts":\([a-z]*\),"heads":\[\(.*\)\]}$/\1 \2 \3 \4 \5 \6 \7/; s/"//g; s/,/ /g; s/true/yes/g; s/false//g; s/  */ /g; s/ $//' out > got
sed 's/  */ /g; s/ - / /g; s/ - / /g; s/ no / /; s/ -$//' rows > want
ok "with what the table has" cmp want got
run tp-shard families --json mixtral
out_is '{"type":"family","name":"mixtral","model_types":["mixtral"],"parallelformers":[],"axes":["tp","ep"],"runs":true,"experts":true,"heads":["lm","score","tag","answer","none"]}' "or for the one that is named"
run tp-shard families --table llama
status_is 2 "--table lists all"

done_testing
