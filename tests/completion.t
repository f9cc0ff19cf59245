#!/bin/sh
# completion.t - what bash, zsh and fish offer after a tab
. "${top_srcdir:?}/tests/lib.sh"

printf 'x: uniform(0, 1)\n' > s.yaml
hpo-sweep ask -S two.db --study first s.yaml > /dev/null
hpo-sweep ask -S two.db --study second s.yaml > /dev/null

# words SHELL WORD... - what it offers for the last, as words on standard output
words() {
    words_shell=$1
    shift
    case $words_shell in
    bash)
        # bash makes words of its own of "="
        bash -c '
            . "$0/cmd/completion.bash"
            for word; do
                case $word in
                --*=*) COMP_WORDS+=("${word%%=*}" = "${word#*=}") ;;
                *) COMP_WORDS+=("$word") ;;
                esac
            done
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _shardutils "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf "%s\\n" "${COMPREPLY[@]}"' "$top_srcdir" "$@"
        ;;
    fish)
        # all that is offered for the word, files aside
        fish -N -c 'source $argv[1]; complete -C "$argv[2..]"' "$top_srcdir/cmd/completion.fish" "$@" |
            sed 's/\t.*//; s/^--[a-z-]*=\(.\)/\1/' | while read -r words_one; do [ -e "$words_one" ] || echo "$words_one"; done | xargs
        ;;
    zsh)
        zsh -f -c '
            compset() { words[CURRENT]=${words[CURRENT]#*=} }
            compadd() { for w in $offers; do [[ $w == ${words[CURRENT]}* ]] && print -r -- $w; done }
            _describe() { for w in $offers; do [[ $w == ${words[CURRENT]}* ]] && print -r -- ${w%%:*}; done }
            _files() { }
            f=$1
            shift
            words=("$@")
            CURRENT=$#words
            . $f "$@"' zsh "$top_srcdir/cmd/completion.zsh" "$@" | xargs
        ;;
    esac
}

# offers NAME WANTED WORD... - the last word may be completed to each of WANTED
offers() {
    offers_name=$1
    offers_wanted=$2
    shift 2
    words "$shell" "$@" 2> err | tr ' ' '\n' | sed '/^$/d' | sort | paste -s -d ' ' - > out
    same_text out "$offers_wanted" "$shell: $offers_name"
}

for shell in bash zsh fish; do
    if ! command -v $shell > /dev/null; then
        skip "$shell completes commands, options and values" "no $shell"
        continue
    fi
    offers "a command is completed" "families" tp-shard fam
    offers "every command that fits is offered" "score serve" tp-run s
    offers "a command's option is completed" "--max-tokens" tp-run generate --max
    offers "so is one that the page alone explains" "--memory-cap" pp-partition schedule --memory-c
    offers "an unknown command offers nothing" "" tp-shard cut --
    offers "types are offered" "f16 f32" tp-shard split --dtype f
    offers "after an equals sign, too" "bf16" tp-shard split --dtype=b
    offers "and formats" "dcp deepspeed-universal" tp-shard merge --export d
    offers "choices of a schedule" "zb-h1 zb-h2 zb-interleaved zb-v" pp-partition schedule --schedule zb-
    offers "families" "qwen2 qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next qwen3_vl" tp-run generate --family qwen
    offers "devices" "a100-40g a100-80g a100-80g-pcie" mem-estimate infer --gpu a100
    offers "samplers" "tpe" hpo-sweep run --sampler t
    offers "and studies of a storage" "first second" hpo-sweep show -S two.db --study ""
done
shell=bash
if command -v bash > /dev/null; then
    offers "options that fit are offered" "--temperature --template --template-arg --threads --top-k --top-p --tp --typical-p" tp-run generate --t
    offers "a program's options are completed" "--version" tp-shard --v
    offers "anything else is a file" "" tp-shard split bar
fi
for program in "$top_builddir"/bin/*; do
    for file in bash zsh fish; do
        ok "${program##*/} is completed by $file" \
            grep -Eq "^(complete|#compdef|for program in) .*${program##*/}( |\$)" "$top_srcdir/cmd/completion.$file"
    done
done

# what is offered is taken
run tp-shard split --help=dtyp
status_is 2 "--help of no option is a usage error"
err_has "unknown option '--dtyp'; did you mean '--dtype'?" "which is told"
run tp-shard split --help=tp
status_is 0 "values that have no list have none"
ok "not a word" test ! -s out
for word in $(mem-estimate infer --help=weights); do
    [ "$word" != codes ] || set -- --framework=tp-run --threads=1 # whose codes they are
    ok "weights in $word are known" mem-estimate infer --weights "$word" "$@" --seq 16 "$bard"
    shift $#
done
for word in $(hpo-sweep run --help=sampler); do
    [ "$word" = grid ] && echo 'x: choice([1, 2])' > one.yaml || echo 'x: uniform(0, 1)' > one.yaml
    ok "the sampler $word is known" hpo-sweep run -q -S "$word.db" --sampler "$word" --trials 1 one.yaml -- \
        sh -c 'echo "$HPO_TRIAL_DIR" > "${HPO_CHECKPOINT-/dev/null}"; echo 1'
done
for word in $(hpo-sweep run --help=pruner); do
    hpo-sweep ask -S "p$word.db" --pruner "$word" one.yaml > out 2> err
    ok "the pruner $word is known" sh -c '! grep -q "none of\|is called" err'
done
done_testing
