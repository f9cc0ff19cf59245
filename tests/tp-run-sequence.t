#!/bin/sh
# tp-run-sequence.t - ranks that share a sequence answer as one does, by exchanging heads, in a ring, or both
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

# as_one DIR OPTION...: the logits within 1e-5 of those of one rank of each tensor group
as_one() {
    dir=$1
    shift
    tp-run logits "$@" --ids "$ids" -o many.safetensors "$dir" &&
        "$compare" one.safetensors many.safetensors 1e-5 $outputs
}

# outputs_of FILE: the names in a safetensors file
outputs_of() {
    tp-shard show --json "$1" | sed -n 's/.*"name":"\([^"]*\)".*/\1/p'
}

ids=$(seq -s, 5 41) # 37: no number of ranks divides it
outputs=logits
tp-run logits --ids "$ids" -o one.safetensors "$bard"
for how in "--sp 2" "--sp 3" "--sp 4" "--sp 5" "--sp 6" "--sp 2 --tp 2" "--sp 2 --tp 3 --pp 2" \
    "--sp 2 --sp-mode ring" "--sp 3 --sp-mode ring" "--sp 7 --sp-mode ring" \
    "--sp 4 --sp-mode ulysses=2" "--sp 6 --sp-mode ulysses=3" "--sp 6 --sp-mode ulysses=2 --pp 2"; do
    ok "bard has the logits of one rank with $how" as_one "$bard" $how
done

# every family's fixture: windows, soft caps, biases, first rows, learned positions, awkward heads; with SHORT in turns
turn=0
for dir in "$data"/models/*/; do
    use_model "$dir"
    if grep -q '"\(conv_L_cache\|[a-z_]*conv_kernel[a-z_]*\|mamba_d_conv\|conv1d_width\|linear_attn_[a-z_]*\)"' "$dir/config.json"; then
        # a state that is handed on from token to token
        run tp-run logits --sp 2 --ids "$ids" -o none.safetensors "$dir"
        status_is 1 "$name is refused with --sp 2"
        err_has "tp-run: ranks cannot share the sequences of family" "which names the family"
        continue
    fi
    tp-run logits --ids "$ids" -o one.safetensors "$dir" || fail "$name runs on one rank"
    outputs=$(outputs_of one.safetensors)
    turn=$((1 - turn))
    [ "${SHORT:+$turn}" = 0 ] || ok "$name answers as on one rank with --sp 2" as_one "$dir" --sp 2
    [ "${SHORT:+$turn}" = 1 ] ||
        ok "$name answers as on one rank in a ring of 3" as_one "$dir" --sp 3 --sp-mode ring
done

# scores: several steps to a window, several windows, lengths that do not divide
tp-run score --window 250 --json "$heldout" "$bard" > one
[ -n "${SHORT-}" ] || ok "bard's text is scored whole" test "$(json one tokens)" = 5082
for how in "--sp 2" "--sp 3" "--sp 3 --sp-mode ring" "--sp 4 --sp-mode ulysses=2" "--sp 2 --pp 3"; do
    run tp-run score --window 250 --json $how "$heldout" "$bard"
    ok "bard's score is that of one rank with $how" awk -v a="$(json one nll)" -v b="$(json out nll)" \
        'BEGIN { d = a - b; exit !(d < 1e-5 && -d < 1e-5) }'
    ok "and counts every token once with $how" test "$(json one tokens)" = "$(json out tokens)"
done

printf 'To be' > short
tp-run score --json short "$bard" > one
run tp-run score --json --sp 6 short "$bard"
ok "a text of fewer tokens than ranks scores the same" test \
    "$(json one nll | cut -c1-7) $(json one tokens)" = "$(json out nll | cut -c1-7) $(json out tokens)"

# generation: the prompt is shared, then each new token is everybody's
head -c 900 "$heldout" > prompt
tp-run generate --json --max-tokens 40 "$bard" < prompt | sed 's/,"tokens_per.*//' > one
ok "a prompt of several blocks is continued" test -s one
for how in "--sp 2" "--sp 5" "--sp 3 --sp-mode ring" "--sp 4 --sp-mode ulysses=2" "--sp 2 --tp 3" \
    "--sp 2 --sp-mode ring --pp 2"; do
    tp-run generate --json --max-tokens 40 $how "$bard" < prompt | sed 's/,"tokens_per.*//' > many
    ok "a text is continued the same with $how" cmp one many
done
for name in mistral-window gemma3 bloom llama-gqa deepseek-v2 deepseek-v3 mixtral; do
    tp-run generate --json --max-tokens 12 --ids 3,4,5,6,7,8,9,10,11 "$data/models/$name" |
        sed 's/,"tokens_per.*//' > one
    for how in "--sp 2" "--sp 2 --sp-mode ring"; do
        tp-run generate --json --max-tokens 12 --ids 3,4,5,6,7,8,9,10,11 $how "$data/models/$name" |
            sed 's/,"tokens_per.*//' > many
        ok "$name goes on the same with $how" cmp one many
    done
done
tp-run generate --json --max-tokens 5 --ids 856 --sp 4 "$bard" | sed 's/,"tokens_per.*//' > many
tp-run generate --json --max-tokens 5 --ids 856 "$bard" | sed 's/,"tokens_per.*//' > one
ok "a prompt of fewer tokens than ranks is everybody's" cmp one many

tp-run logits --ids "$(seq -s, 5 41)" --trace one.safetensors --tp 1 "$bard"
tp-run logits --ids "$(seq -s, 5 41)" --trace many.safetensors --sp 3 "$bard"
outputs="layer.0.q layer.0.k layer.5.x layer.3.h begin.x"
ok "a trace has the rows of all tokens" "$compare" one.safetensors many.safetensors 1e-5 $outputs

# activations fall with the number of ranks, the cache where heads or rows are dealt
tp-run score --window 512 --sp 1 --report-memory "$heldout" "$bard" > out 2> one
for how in "--sp 2" "--sp 2 --sp-mode ring"; do
    tp-run score --window 512 $how --report-memory "$heldout" "$bard" > out 2> two
    for key in activations kv_cache; do
        ok "each of two ranks needs about half the $key with $how" \
            awk -v a="$(json one $key)" -v b="$(head -n 1 two > first; json first $key)" \
            'BEGIN { exit !(b < 0.85 * a) }'
    done
done

run tp-run score --sp 7 "$heldout" "$bard"
status_is 1 "heads cannot be exchanged by more ranks than there are heads"
err_is "tp-run: 7 ranks that share a sequence cannot exchange the 6 heads of a rank: a ring can be longer" \
    "and the line says so"
for mode in rings ulysses=0 ulysses= ulysses=3 x; do
    run tp-run score --sp 4 --sp-mode "$mode" "$heldout" "$bard"
    status_is 2 "--sp-mode $mode is refused for 4 ranks"
    err_has "--sp-mode" "by name"
done
run tp-run score --sp-mode ring "$heldout" "$bard"
status_is 2 "it is refused where no ranks share a sequence"
err_has "--sp-mode ring: no ranks share a sequence: give --sp as well" "which is said"
done_testing
