#!/bin/sh
# draft.t - drafts change no token: what they get right comes sooner
. "${top_srcdir:?}/tests/lib.sh"

bard=$top_srcdir/examples/bard
# texts MODEL OPTION...: what is generated; notes: what was said about it
texts() {
    dir=$1
    shift
    tp-run generate -v --json "$@" "$dir" 2> notes > out || return
    sed 's/,"tokens_per_second.*//' out
}
# drafted: tokens that were drafted, and those of them that were right
drafted() {
    sed -n 's/^tp-run: draft: \([0-9]*\) of \([0-9]*\) drafted.*/\2 \1/p' notes
}
same() {
    texts "$@" > got && cmp want got
}

# a model drafts for itself: nearly all is right, whatever is drawn
set -- --prompt ROMEO: --prompt "What light" --ids 1 --max-tokens 60
for how in "--temperature 0" "--temperature 0.8 --seed 7" "--temperature 1.3 --top-k 9 --min-p 0.05 --repetition-penalty 1.2"; do
    # shellcheck disable=SC2086
    texts "$bard" "$@" $how > want
    # shellcheck disable=SC2086
    ok "$how: a model's draft changes nothing" same "$bard" "$@" $how --draft "$bard"
    drafted > counts
    # shellcheck disable=SC2086
    ok "$how: nor does looking up" same "$bard" "$@" $how --draft lookup
    [ "$how" = "--temperature 0.8 --seed 7" ] || continue
    ok "it draws what the model draws" awk '{ exit !($1 > 90 && $2 > 0.9 * $1) }' counts
    # shellcheck disable=SC2086
    ok "on two ranks and two stages" same "$bard" "$@" $how --draft "$bard" --draft-tokens 3 --tp 2 --pp 2
done

# another model is often wrong; each line has its own seed and settings
model=$data/models/llama-gqa
awk -v n="${LONG:+4000}" 'BEGIN {
    for (i = 1; i <= (n ? n : 60); i++)
        printf "{\"ids\":[%d,%d,%d],\"seed\":%d,\"temperature\":%g%s}\n", i % 60, i % 7, i % 50, i, (i % 4) / 2,
            i % 3 ? "" : ",\"repetition_penalty\":1.3,\"no_repeat_ngram_size\":3"
}' > lines
set -- --input lines --max-tokens 20
texts "$model" "$@" > want
for draft in lookup "$data/models/llama-awkward"; do
    ok "seeds and settings of lines: $draft" same "$model" "$@" --draft "$draft" --requests 8 --cache-tokens 400
    drafted > counts
    ok "of what $draft says, some is wrong and some is right" awk '{ exit !($2 > 0 && $1 > $2) }' counts
done

# of other seeds, drafted texts are distributed as texts without a draft: two samples of three tokens, each one of
# two, have a chi-square that 0.999 of such samples do not exceed (7 degrees of freedom)
draw() {
    seq "$1" "$2" | sed 's/.*/{"ids":[0,9],"seed":&}/' > seeds
    shift 2
    texts "$bard" --input seeds --max-tokens 3 --temperature 1.5 --top-k 2 --requests 16 "$@" |
        sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/'
}
some=${LONG:+8000}
some=${some:-500}
draw 1 "$some" > without
draw $((some + 1)) $((2 * some)) --draft "$bard" > with
drafted > counts
ok "drafted texts are distributed as others" awk '
    FNR == NR { a[$0]++; v[$0]; n++; next }
    { b[$0]++; v[$0]; m++ }
    END {
        for (k in v) { sum += (a[k] * sqrt(m / n) - b[k] * sqrt(n / m)) ^ 2 / (a[k] + b[k]); cells++ }
        if (n != m || cells != 8 || sum > 24.3) { print cells, sum; exit 1 }
    }' without with
ok "which come from drafts" awk -v n="$some" '{ exit !($2 > n / 2) }' counts

# states and windows go back, too
for of in models/lfm2 models/mixtral stacks/t5; do
    set -- --input loops --max-tokens 24 --temperature 0.3
    case $of in
    stacks/*) printf '{"source_ids":[5,6,7,5,6,7],"seed":%d}\n' 1 2 3 4 ;;
    *) printf '{"ids":[5,6,7,5,6,7,5,6,7,5],"seed":%d}\n' 1 2 3 4 ;;
    esac > loops
    texts "$data/$of" "$@" > want
    ok "$of: the same text" same "$data/$of" "$@" --draft lookup
done
texts "$data/models/lfm2" --input lines --max-tokens 12 > want
ok "drafts of a model for one with states" same "$data/models/lfm2" --input lines --max-tokens 12 --draft "$model"

# in a conversation, whose texts the draft model goes on reading
printf 'Hello\nHello again\n' > said
answers() { tp-run chat -q --seed 3 --temperature 1 --max-tokens 30 "$@" "$data/chat" < said; }
answers > want
for draft in lookup "$data/chat"; do
    answers --draft "$draft" > got
    ok "a chat is the same with --draft $draft" cmp want got
done

# what does not pay is given up
lookups() {
    tp-run generate -v --ids 1,2,1,2,1,2 --max-tokens 230 --temperature 9 --draft lookup --cache-tokens 512 "$bard" \
        2>&1 > out | grep "times as fast"
}
ok "two trials are made and said" lookups

run tp-run generate --ids 1 --max-tokens 2 --report-memory --draft "$bard" --tp 2 "$bard"
ok "the first rank's memory has the draft's" \
    test "$(sed -n 's/.*"rank":\([0-9]*\).*"draft":[1-9][0-9]*.*/\1/p' err)" = 0
run tp-run generate --ids 1 --max-tokens 2 --report-memory --draft lookup "$bard"
ok "looking up has none" sh -c '! grep -q draft err'

# what cannot be
refused() {
    want=$1 message=$2
    shift 2
    run tp-run generate --ids 1 "$@"
    status_is "$want" "refused: $message"
    err_has "$message" "and this is said"
}
refused 2 "--draft-tokens needs --draft" --draft-tokens 3 "$bard"
refused 2 "--draft-tokens 9: at most 8" --draft lookup --draft-tokens 9 "$bard"
refused 2 "--draft: not with --sp, whose ranks share a text's tokens" --draft lookup --sp 2 "$bard"
refused 3 "family lfm2 cannot draft: its states cannot be cut back" --draft "$data/models/lfm2" "$model"
refused 3 "$data/chat: its tokenizer is another one: token 61 is not that of $bard" --draft "$data/chat" "$bard"
refused 3 "--draft: the model's rotary angles depend on each length" --draft lookup "$data/models/llama-dynamic"
done_testing
