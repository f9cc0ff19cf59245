#!/bin/sh
# models - trained models give their recorded ids, likelihoods and logits at every tp
. "${top_srcdir:?}/tests/lib.sh"

# flat FILE: a JSON file as one line, without the spaces between its parts
flat() {
    sed 's/^ *//; s/": /":/g' "$1" | tr -d '\n'
}

# row FILE ROW COLS: a row of the only tensor, f32, of a safetensors file, a number a line
row() {
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    od -An -v -tf4 -w4 -j $((8 + header + $2 * $3 * 4)) -N $(($3 * 4)) "$1"
}

# begins_with "NUMBERS" FILE: FILE's first lines are these numbers, within 1e-4 of the largest
begins_with() {
    echo "$1" | tr ',' '\n' | paste - "$2" | awk 'NF < 2 { exit } { want[NR] = $1; got[NR] = $2 }
        { size = $2 < 0 ? -$2 : $2; if (size > most) most = size }
        END { for (i in want) { d = want[i] - got[i]; if (d > 1e-4 * most || -d > 1e-4 * most) {
                print "number " i ": " got[i] " for " want[i]; exit 1 } } }'
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

# stories260K and babyllama-tok105: expected.json has prompt and greedy ids (prompt first)

greedy() {
    tp-run generate --json --tp "$1" --ids "$prompt" --max-tokens "$new" "$dir/hf" > greedy &&
        got=$(json greedy ids | tr -d '[] ') && echo "ids $got" && [ "$prompt,$got" = "$ids" ]
}

likelihood() {
    tp-run score --json --tp "$1" --ids-file ids "$dir/hf" > score && cat score &&
        near "$(json score nll)" "$nll" 1e-4
}

logits() {
    tp-run logits --tp "$1" --ids "$prompt" -o l.safetensors "$dir/hf" &&
        row l.safetensors $((length - 1)) "$vocab" > last && begins_with "$first" last
}

for model in stories260K babyllama-tok105; do
    dir=$data/models/$model
    flat "$dir/expected.json" > facts
    prompt=$(json facts prompt_ids | tr -d '[]')
    ids=$(json facts greedy_ids | tr -d '[]')
    nll=$(json facts mean_nll_of_greedy_ids)
    first=$(json facts last_prompt_logits_first8 | tr -d '[]')
    vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$dir/hf/config.json")
    length=$(echo "$prompt" | tr ',' '\n' | wc -l)
    new=$(($(echo "$ids" | tr ',' '\n' | wc -l) - length))
    echo "$ids" | tr ',' ' ' > ids
    at_tp "$model: the greedy ids at tp 1, 2, 4 and 8 are those expected" "1 2 4 8" greedy
    at_tp "$model: the likelihood at tp 1, 2, 4 and 8 is that expected" "1 2 4 8" likelihood
    at_tp "$model: the logits at tp 1, 2, 4 and 8 are those expected" "1 2 4 8" logits
done

# bard: reference.json

bard_score() {
    tp-run score --json --tp "$1" --window "$window" "$bard/heldout.txt" "$bard" > score &&
        cat score && [ "$(json score tokens)" = "$tokens" ] &&
        near "$(json score nll)" "$nll" 1e-4 &&
        near "$(json score perplexity)" "$perplexity" 1e-2
}

# reference KEY N: the Nth value of KEY in reference.json's list "greedy"
reference() {
    sed 's/.*"greedy":\[\(.*\)\],"logits".*/\1/; s/},{/}\n{/g' facts | sed -n "$2p" > one
    sed -n "s/.*\"$1\":\(\"\([^\"\\\\]\|\\\\.\)*\"\|\[[^]]*\]\).*/\1/p" one | sed 's/^"\(.*\)"$/\1/'
}

bard_greedy() {
    for i in 1 2 3; do
        prompt=$(printf '%b' "$(reference prompt $i)")
        tp-run generate --json --tp "$1" --prompt "$prompt" --max-tokens 80 "$bard" > got || return
        for key in ids prompt_ids; do
            [ "$(json got $key | tr -d ' ')" = "$(reference $key $i)" ] || {
                echo "$key of prompt $i: $(json got $key)"
                return 1
            }
        done
        text=$(sed -n 's/.*"text": *"\(\([^"\\]\|\\.\)*\)".*/\1/p' got)
        [ "$text" = "$(reference text $i)" ] || {
            echo "text of prompt $i: $text"
            return 1
        }
    done
}

bard_logits() {
    tp-run logits --tp "$1" --ids 856,59 -o l.safetensors "$bard" || return
    row l.safetensors 1 1024 > last
    begins_with "$first" last &&
        near "$(row l.safetensors 0 2048 | awk '{ s += $1 * $1 } END { printf "%.6f", s }')" \
            "$squares" 1
}

if [ -f "$bard/reference.json" ]; then
    flat "$bard/reference.json" > facts
    window=$(json facts window)
    tokens=$(json facts tokens)
    nll=$(json facts nll)
    perplexity=$(json facts perplexity)
    first=$(json facts last_token_first_16 | tr -d '[]')
    squares=$(json facts sum_of_squares)
    tps="1 2 3 4 5 6" # the whole text is the reference's
    [ -z "${SHORT-}" ] || tps=5
    at_tp "bard: tp $tps score the held-out text as the reference does" "$tps" bard_score
    at_tp "bard: tp 1 to 6 write the reference's texts" "1 2 3 4 5 6" bard_greedy
    at_tp "bard: tp 1 to 6 give the reference's logits" "1 2 3 4 5 6" bard_logits
fi

# keys that one attention reads through a window and another whole are kept whole
cat > two.json << 'EOF'
{"family":"two","extends":"llama","match":{"model_type":["llama"]},"forward":{"layer":["h = rmsnorm(x, attn_norm, eps)",
"q = rope(linear(h, wq) + bq, rot)","k = keep(rope(linear(h, wk) + bk, rot))","v = keep(linear(h, wv) + bv)",
"a = attention(q, k, v, causal, window = 2) + attention(q, k, v, causal)","y = x + linear(a, wo)",
"g = rmsnorm(y, ffn_norm, eps)","f = activation(linear(g, gate) + gate_b, act) * (linear(g, up) + up_b)",
"x = y + linear(f, down) + down_b"]}}
EOF
two() { tp-run generate --json --family two.json --ids "$1" --max-tokens "$2" "$data/models/llama-gqa" > two; }
two_ids=$(seq -s, 3 30)
two "$two_ids" 12
two_made=$(json two ids | tr -d '[]')
two_same=true
for n in 4 6 8 10; do
    two "$two_ids,$(echo "$two_made" | cut -d, -f1-$n)" 1
    [ "$(json two ids | tr -d '[]')" = "$(echo "$two_made" | cut -d, -f$((n + 1)))" ] || two_same=false
done
ok "a key read through a window and without one stays in the cache" $two_same
done_testing
