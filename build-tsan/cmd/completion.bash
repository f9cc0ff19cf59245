# completion.bash - completes the programs of shardutils from what their --help says
# shellcheck shell=bash
_shardutils() {
    local program=$1 word=$2 help
    local -a command=()
    COMPREPLY=()
    help=$("$program" --help 2> /dev/null) || return
    if [[ $help == *COMMAND* ]]; then
        if ((COMP_CWORD == 1)); then
            # shellcheck disable=SC2207 # words of letters and hyphens
            COMPREPLY=($(compgen -W "$(sed -n \
                's/^  \([a-z][a-z-]*\)  .*/\1/p; s/^  .\{4\}\(--[a-z0-9-]*\).*/\1/p' \
                <<< "$help")" -- "$word"))
            return
        fi
        command=("${COMP_WORDS[1]}")
    fi
    if [[ $word == -* ]]; then
        # shellcheck disable=SC2207 # words of letters and hyphens
        COMPREPLY=($(compgen -W "$("$program" "${command[@]}" --help 2> /dev/null |
            sed -n -e 's/^  .\{4\}\(--[a-z0-9-]*\).*/\1/p' \
                -e '/^  + /{s/^  + //;s/=[^ ]*//g;p}')" -- "$word"))
    fi
}
complete -o default -F _shardutils hpo-sweep mem-estimate pp-partition tp-run tp-shard
