#!/bin/sh
# completion.t - what bash offers after a tab
. "${top_srcdir:?}/tests/lib.sh"

if ! command -v bash > /dev/null; then
    skip "bash completes commands and options" "no bash"
    done_testing
fi

# offers NAME WANTED WORD... - the last word may be completed to each of WANTED
offers() {
    offers_name=$1
    offers_wanted=$2
    shift 2
    bash -c '
        . "$0/cmd/completion.bash"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _shardutils "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo "${COMPREPLY[@]}"' "$top_srcdir" "$@" > out 2> err
    same_text out "$offers_wanted" "$offers_name"
}

offers "a command is completed" "families" tp-shard fam
offers "every command that fits is offered" "score" tp-run s
offers "a command's option is completed" "--max-tokens" tp-run generate --max
offers "options that fit are offered" "--temperature --top-k --top-p --tp --threads" \
    tp-run generate --t
offers "a program's options are completed" "--version" tp-shard --v
offers "anything else is a file" "" tp-shard split bar
offers "an unknown command offers nothing" "" tp-shard cut --
for program in "$top_builddir"/bin/*; do
    ok "${program##*/} is completed" \
        grep -q "^complete .* ${program##*/}\\( \\|\$\\)" "$top_srcdir/cmd/completion.bash"
done
done_testing
