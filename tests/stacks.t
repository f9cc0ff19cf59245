#!/bin/sh
# stacks.t - models of two stacks: a decoder that has read a source answers as in PyTorch's transformers
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

for dir in "$data"/stacks/t5*/; do
    dir=${dir%/}
    model=${dir##*/}
    expected=$dir/expected.json
    ids=$(list "$expected" ids)
    source=$(list "$expected" source_ids)
    nll=$(sed -n 's/^ *"nll": *\([0-9.]*\).*/\1/p' "$expected")
    echo "{\"source_ids\":[$source],\"ids\":[${ids#*,}]}" > pair.json
    { cat pair.json pair.json; echo "{\"source_ids\":[5,6,7],\"ids\":[8,9]}"; cat pair.json; } > pairs.json
    echo "{\"ids\":[$source]}" > prompt.json
    { cat prompt.json; echo '{"ids":[5,6,7]}'; cat prompt.json; } > prompts.json
    tp-run generate --input prompts.json --max-tokens 12 --json "$dir" | sed 's/,"tokens_per.*//' > texts
    for tp in 1 2 3 6; do
        run tp-run logits --tp $tp --ids "$ids" --source-ids "$source" -o one.safetensors "$dir"
        ok "$model: the logits at tp $tp are those of transformers" \
            "$compare" "$dir/expected.safetensors" one.safetensors 1e-4 logits
        for pp in 2 3 4 5; do
            tp-run logits --tp $tp --pp $pp --ids "$ids" --source-ids "$source" -o many.safetensors "$dir"
            ok "$model: and over $pp stages, to the bit" cmp one.safetensors many.safetensors
        done
    done
    for mesh in tp=1 tp=2,pp=3 dp=2,pp=2; do
        tp-run generate --mesh $mesh --ids "$source" --max-tokens 12 --json "$dir" > out
        ok "$model: the greedy ids on $mesh are those of transformers" \
            test "$(json out ids | tr -d '[] ')" = "$(list "$expected" ids 2)"
        tp-run generate --mesh $mesh --input prompts.json --max-tokens 12 --json "$dir" |
            sed 's/,"tokens_per.*//' > out
        ok "$model: several sources do not mix on $mesh" cmp texts out
        tp-run score --mesh $mesh --input pair.json --json "$dir" > out
        ok "$model: so is the likelihood on $mesh" near "$(json out nll)" "$nll" 1e-4
        tp-run score --mesh $mesh --input pairs.json --json "$dir" > out
        ok "$model: of each of several" near "$(tail -n 1 out > last; json last nll)" "$nll" 1e-4
    done
    tp-run logits --trace trace1 --ids "$ids" --source-ids "$source" "$dir"
    tp-run logits --trace trace3 --pp 3 --ids "$ids" --source-ids "$source" "$dir"
    ok "$model: a trace has both stacks" cmp trace1 trace3
    for mesh in tp=2,pp=3 tp=6 pp=5 tp=4,pp=2; do
        tp-shard split -qf --mesh $mesh "$dir" cut && tp-shard verify -q --against "$dir" cut > verify.out
        ok "$model: cut to $mesh it is intact" test $? -eq 0
        tp-shard merge -qf cut whole
        ok "$model: and whole again, to the byte" cmp "$dir/model.safetensors" whole/model.safetensors
        run tp-run logits --ids "$ids" --source-ids "$source" -o cut.safetensors cut
        ok "$model: and answers the same" "$compare" one.safetensors cut.safetensors 5e-6 logits
    done
    pp-partition split -qf --stages 1,3,1 "$dir" uneven
    run tp-run logits --ids "$ids" --source-ids "$source" -o cut.safetensors uneven
    ok "$model: a stage may have layers of both stacks" \
        "$compare" "$dir/expected.safetensors" cut.safetensors 1e-4 logits
done

# mT5 has a head of its own, even where transformers 5 has written that it is tied
mkdir mt5 && cp "$data/stacks/t5-gated/"* mt5 && sed 's/"model_type": "t5"/"model_type": "mt5"/
    s/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$data/stacks/t5-gated/config.json" > mt5/config.json
expected=mt5/expected.json
run tp-run logits --ids "$(list "$expected" ids)" --source-ids "$(list "$expected" source_ids)" -o o mt5
ok "mt5: the head that is stored is read, and unscaled" \
    "$compare" mt5/expected.safetensors o 1e-4 logits

# but transformers 5 ties it when it saves: then there is none, and no scale either
mkdir mt5-saved && cp "$data/stacks/t5/"* mt5-saved &&
    sed 's/"model_type": "t5"/"model_type": "mt5"/' "$data/stacks/t5/config.json" > mt5-saved/config.json
run tp-run logits --ids 0,5,6 --source-ids 7,8 -o tied mt5-saved
status_is 0 "mt5: a head that is not stored is the embedding"
sed 's/"scale_decoder_outputs": true/"scale_decoder_outputs": false/' "$data/stacks/t5/config.json" > config
rm -rf t5-saved && mkdir t5-saved && cp "$data/stacks/t5/"* t5-saved && mv config t5-saved/config.json
run tp-run logits --ids 0,5,6 --source-ids 7,8 -o unscaled t5-saved
ok "T5 v1.1 as transformers 5 saves it: so is its head, unscaled" "$compare" tied unscaled 1e-6 logits

t5=$data/stacks/t5
run tp-run logits --ids 0,1 -o o "$t5"
status_is 3 "a source is needed"
err_is "tp-run: --ids: family t5 needs an encoder input, a source" "and asked for"
run tp-run logits --ids 0,1 --source-ids 2 -o o "$bard"
err_is "tp-run: --ids: family llama has no encoder input" "where there is any"
run tp-run score --ids-file "$t5/config.json" "$t5"
status_is 3 "a document alone is not scored"

# ranks that share the text share its source
for dir in "$t5" "$data/stacks/t5-gated"; do
    expected=$dir/expected.json
    source=$(list "$expected" source_ids)
    for mesh in sp=2 sp=3,tp=2 sp=6 sp=2,pp=3; do
        run tp-run logits --mesh $mesh --ids "$(list "$expected" ids)" --source-ids "$source" -o shared.safetensors "$dir"
        ok "${dir##*/}: the logits on $mesh are those of transformers" \
            "$compare" "$dir/expected.safetensors" shared.safetensors 1e-4 logits
        tp-run generate --mesh $mesh --ids "$source" --max-tokens 12 --json "$dir" > out
        ok "so are the greedy ids" test "$(json out ids | tr -d '[] ')" = "$(list "$expected" ids 2)"
    done
done
for source in 7 7,8 7,8,9,10; do
    tp-run logits --ids 0,5,6,7,8 --source-ids $source -o one.safetensors "$t5"
    run tp-run logits --sp 3 --ids 0,5,6,7,8 --source-ids $source -o many.safetensors "$t5"
    ok "a source of few tokens ($source) over three ranks" "$compare" one.safetensors many.safetensors 1e-6 logits
    run tp-run logits --sp 3 --ids 0 --source-ids $source,$source -o many.safetensors "$t5"
    status_is 0 "and a text of one"
done
tp-run logits --trace trace1 --ids 0,5,6 --source-ids 7,8,9 "$t5"
run tp-run logits --trace trace2 --sp 2 --ids 0,5,6 --source-ids 7,8,9 "$t5"
ok "a trace has the rows of all of them" "$compare" trace1 trace2 1e-5 encoder.1.e decoder.2.x
scores() {
    tp-run score "$@" --input pairs.json --json "$t5" | sed 's/.*"nll":\(.......\).*/\1/'
}
scores > one
scores --sp 2 > many
ok "several are scored one after another" cmp one many
run tp-run score --sp 2 --sp-mode ring --input pair.json "$t5"
status_is 1 "a ring of ranks does not share them"
err_is "tp-run: a ring of ranks cannot share the sequences of family t5: --sp-mode ulysses" "which is said"
run tp-run logits --tp 7 --ids 0,1 --source-ids 2 -o o "$t5"
status_is 1 "more ranks than heads do not fit"

# one word of the language: a table of biases
bad() {
    sed "s/$1/$2/" "$top_srcdir/lib/model/families/t5.json" > bad.json
    run tp-run logits --family bad.json --ids 0,1 --source-ids 2 -o o "$t5"
    status_is 3 "$3"
    err_lines 1 "in one line"
}
bad ', d_bias, far = far' ', d_bias' "a table of biases without its reach is refused"
bad 'all, e_bias' 'all, e_q' "and a table that is none"
bad 'attention(linear(b, c_q), ck, cv, all' 'attention(linear(b, c_q), ck, cv, causal' \
    "a source is not read causally"
bad 'y = x + linear(a, d_o)' 'y = e + linear(a, d_o)' "rows of the source and of the text do not add"
done_testing
