# completion.bash - completes the programs of shardutils from what their --help says
# shellcheck shell=bash

# _shardutils_values PROGRAM COMMAND OPTION WORD... - the values that --OPTION can have, as far as
# they can be listed; WORD... is the whole line
_shardutils_values() {
    local program=$1 command=$2 option=$3 storage='' before=''
    shift 3
    case $option in
    --family) tp-shard families 2> /dev/null | sed 's/ .*//' ;;
    --gpu) mem-estimate gpus --json 2> /dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p' ;;
    -S | --storage) ls -d -- *.db *.log *.journal 2> /dev/null ;;
    --study)
        for word in "$@"; do
            case $before in -S | --storage) storage=$word ;; esac
            case $word in --storage=*) storage=${word#*=} ;; esac
            before=$word
        done
        "$program" show ${storage:+"--storage=$storage"} 2>&1 > /dev/null |
            sed -n 's/.*choose one with --study: //p' | sed 's/, /\n/g'
        ;;
    --*) "$program" "$command" "--help=${option#--}" 2> /dev/null ;;
    esac
}

_shardutils() {
    local program=$1 word=$2 before=$3 help
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
    if [[ $word == = ]]; then # bash makes a word of it
        word=''
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [[ $before == -* && $word != -* ]]; then
        # shellcheck disable=SC2207 # words without blanks
        COMPREPLY=($(compgen -W "$(_shardutils_values "$program" "${command[0]}" "$before" "${COMP_WORDS[@]}")" -- "$word"))
        return
    fi
    if [[ $word == -* ]]; then
        # shellcheck disable=SC2207 # words of letters and hyphens
        COMPREPLY=($(compgen -W "$("$program" "${command[@]}" --help 2> /dev/null |
            sed -n -e 's/^  .\{4\}\(--[a-z0-9-]*\).*/\1/p' \
                -e '/^  + /{s/^  + //;s/=[^ ]*//g;p}')" -- "$word"))
    fi
}
complete -o default -F _shardutils hpo-sweep mem-estimate pp-partition tp-run tp-shard
