#!/bin/sh
# tp-run-experts.t - experts that are dealt over ranks: answers are those of one rank, whoever has how many rows
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors

# texts of unequal length, more for some ranks than for others
printf '{"ids":[1,5,3,2,7,4]}\n{"ids":[3]}\n{"ids":[9,8,7,6,5,4,3,2,1,2,3,4]}\n{"ids":[11,12]}\n{"ids":[2,4,6,8]}\n' > texts
generate() {
    tp-run generate --input texts --max-tokens 9 --json "$@" | sed 's/,"tokens_per.*//'
}
for model in mixtral qwen2-moe qwen3-moe olmoe olmoe-clip deepseek-v2 deepseek-v2-greedy deepseek-v3; do
    use_model "$data/models/$model"
    experts=$(tp-shard show "$dir" | grep -c 'layers\.1\..*experts\.[0-9]*\.\(w1\|gate_proj\)\.weight')
    tp-run logits --input texts -o one.safetensors "$dir"
    tp-run logits --tp 2 --input texts -o two.safetensors "$dir"
    tp-run logits --tp 2 --ids "$ids" -o expected.safetensors "$dir"
    generate "$dir" > one
    for mesh in ep=2 ep=3 ep=4 ep="$experts" ep=2,pp=2 ep=2,dp=2 ep=2,sp=2; do
        [ "$mesh" = ep=4 ] && [ "$experts" -lt 4 ] && continue
        tp-run logits --mesh $mesh --input texts -o many.safetensors "$dir"
        ok "$model: the logits on $mesh are those of one rank, to the bit" cmp one.safetensors many.safetensors
    done
    tp-run logits --mesh tp=2,ep=2 --input texts -o many.safetensors "$dir"
    ok "$model: and with two tensor-parallel ranks each" cmp two.safetensors many.safetensors
    tp-run logits --mesh tp=2,ep=2 --ids "$ids" -o many.safetensors "$dir"
    ok "$model: also of one text, of which the others have no rows" cmp expected.safetensors many.safetensors
    ok "$model: as near to one rank as tp is" sh -c \
        "tp-run logits --ids '$ids' -o one.safetensors '$dir' && '$compare' one.safetensors many.safetensors 1e-5 logits"
    generate --ep 2 "$dir" > many
    ok "$model: the same texts are made" cmp one many
done

# mixtral: five experts
dir=$data/models/mixtral
generate "$dir" > one
for option in "--ep 5" "--ep 2 --pp 2" "--ep 2 --dp 2" "--ep 3 --requests 1" "--ep 2 --cache-tokens 32"; do
    # shellcheck disable=SC2086
    generate $option "$dir" > many
    ok "the same texts with $option" cmp one many
done
grep -v '\[3\]' texts > longer
tp-run score --input longer --window 5 --json "$dir" > one
for mesh in ep=3 ep=2,pp=2; do
    tp-run score --input longer --window 5 --json --mesh $mesh "$dir" > many
    ok "the same scores on $mesh" cmp one many
done
tp-shard split -q --mesh tp=2,ep=2 "$dir" cut
tp-run logits --tp 2 --ids 1,2,3,4,5 -o one.safetensors "$dir"
run tp-run logits --ids 1,2,3,4,5 -o many.safetensors cut
status_is 0 "a checkpoint is run as it was cut"
ok "with the same logits" cmp one.safetensors many.safetensors
tp-run logits --mesh ep=4 --ids 1,2,3,4,5 -o many.safetensors cut
ok "and on another layout" "$compare" one.safetensors many.safetensors 1e-5 logits
tp-run logits --deterministic --ids 1,2,3,4,5 -o one.safetensors "$dir"
tp-run logits --deterministic --ids 1,2,3,4,5 -o many.safetensors cut
ok "with --deterministic to the bit" cmp one.safetensors many.safetensors
run tp-run bench --repeat 1 --tokens 4 --ep 2 "$dir"
status_is 0 "bench takes steps with all ranks"
run tp-run generate --ids 1 --ep 6 "$dir"
status_is 1 "there can be no more ranks than experts"
err_is "tp-run: ep 6: the model has 5 experts; valid ep: 1 to 5" "and the reason is told"
tp-run program --mesh ep=2 "$dir" > out
ok "a program shows what is exchanged" grep -q '^collectives: 6 all-to-all over ep of 2, bytes ' out
ok "and no sum over those ranks" test "$(grep -c 'all-reduce.* over ep' out)" = 0
done_testing
