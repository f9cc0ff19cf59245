#!/bin/sh
# deterministic.t - with --deterministic answers have the same bits on any number of tensor-parallel ranks
. "${top_srcdir:?}/tests/lib.sh"

# same OPTIONS MESH...: logits with OPTIONS of $dir are the same file on one rank and on each MESH
same() {
    options=$1
    shift
    # shellcheck disable=SC2086
    tp-run logits --deterministic $options -o one.safetensors "$dir" || return 1
    for mesh; do
        # shellcheck disable=SC2086
        tp-run logits --deterministic $options --mesh "$mesh" -o many.safetensors "$dir" &&
            cmp one.safetensors many.safetensors || return 1
    done
}

# tp 4 where heads and ffn divide, else the status says that they do not
four() {
    run tp-run logits --deterministic --tp 4 --ids "$ids" -o many.safetensors "$dir"
    case $status in
    0) cmp one.safetensors many.safetensors ;;
    1) grep -q "the model has . heads\|the model's num_attention_heads is" err ;;
    3) grep -q '^tp-run: tp 4: deterministic sums need \(ranks that have halves\|whole groups of a norm\)' err && test "$(wc -l < err)" -eq 1 ;;
    *) false ;;
    esac
}

fours=0 turn=0 least=12
[ -z "${SHORT-}" ] || least=6
for d in "$data"/models/*/ "$data"/heads/*/; do
    use_model "$d" 2> /dev/null
    [ -f "$d/ids" ] && ids=$(cat "$d/ids")
    turn=$((1 - turn))
    case $name in
    bamba | granite-hybrid) # whose norm has one group
        run tp-run logits --deterministic --tp 2 --ids "$ids" -o many.safetensors "$dir"
        status_is 3 "$name: 2 ranks are refused"
        err_has "tp 2: deterministic sums need whole groups of a norm" "which says why"
        ok "$name: the same file in stages" same "--ids $ids" pp=2
        continue
        ;;
    esac
    if [ "${SHORT:+$turn}" = 0 ]; then # with SHORT in turns
        ok "$name: the same file on 1 and 2 ranks in stages" same "--ids $ids" tp=2,pp=2
        continue
    fi
    ok "$name: the same file on 1 and 2 ranks, and in stages" same "--ids $ids" tp=2 tp=2,pp=2
    ok "$name: on 4, or refused" four
    [ "$status" -eq 0 ] && fours=$((fours + 1))
done
ok "$least models or more divide by 4" test $fours -ge $least
for d in "$data"/stacks/*/; do
    use_model "$d"
    what="--ids $ids --source-ids $(list "$d/expected.json" source_ids)"
    if [ -f "$d/features.safetensors" ]; then
        echo "{\"features\":\"$d/features.safetensors\",\"ids\":[$ids]}" > pair.json
        what="--input pair.json"
    fi
    ok "$name: the same file on 1 and 2 ranks, and in stages" same "$what" tp=2 tp=2,pp=2
done
dir=$data/models/llama-gqa
ok "every line's value is the same, with ranks that exchange heads too" \
    same "--ids 1,5,3,2,7,4,9 --trace trace.safetensors" tp=2 tp=4 sp=2 tp=2,sp=2 pp=2

# bard: three groups of two heads, two of them on one rank
dir=$bard
ok "bard: the same file on 2 ranks, in stages" same "--prompt ROMEO:" tp=2 pp=2 tp=2,pp=3
i=0
for option in "" "--tp 2" "--pp 2" "--tp 2 --threads 2"; do
    i=$((i + 1))
    # shellcheck disable=SC2086
    {
        tp-run score --deterministic --json --window 256 $option "$heldout" "$bard" > score$i
        tp-run generate --deterministic --json --prompt ROMEO: --prompt Q --prompt 'What is' --max-tokens 12 \
            --temperature 1 --seed 3 $option "$bard" | sed 's/,"tokens_per.*//' > text$i
    }
done
for i in 2 3 4; do
    ok "bard: the score's digits are the same ($i)" cmp score1 score$i
    ok "bard: what is drawn is the same ($i)" cmp text1 text$i
done
tp-run generate --deterministic --json --prompt 'What is' --max-tokens 12 "$bard" | sed 's/,"tokens_per.*//' > alone
tp-run generate --deterministic --json --prompt ROMEO: --prompt Q --prompt 'What is' --max-tokens 12 --tp 2 "$bard" |
    sed 's/,"tokens_per.*//' | tail -n 1 > among
ok "a text on one rank alone is what it is among others on two" cmp alone among

run tp-run logits --deterministic --tp 3 --ids 1,2,3 -o o.safetensors "$bard"
status_is 3 "a layout whose parts are none of the tree's is refused"
err_is "tp-run: tp 3: deterministic sums need ranks that have halves, or halves of halves, of ffn" "in one line"
ok "and nothing is written" test ! -e o.safetensors
run tp-run logits --deterministic --sp 2 --sp-mode ring --ids 1,2,3 -o o.safetensors "$bard"
status_is 2 "a ring of ranks is refused"
tp-run program --deterministic --tp 2 "$bard" > out
ok "a program says what it sums by a tree" test "$(grep -c ' = linear(.* by a tree of [4-6];' out)" -eq 12
done_testing
