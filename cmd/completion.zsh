#compdef hpo-sweep mem-estimate pp-partition tp-run tp-shard
# completion.zsh - completes the programs of shardutils from what their --help says

# Lines of --help as NAME:TEXT: commands, or options, also those that --help names without a word.
_shardutils_commands() { sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p'; }
_shardutils_options() {
    sed -n -e 's/^  .\{4\}\(--[a-z0-9-]*\)[^ ]*  *\(.*\)/\1:\2/p' \
        -e '/^  + /{s/^  + //;s/=[^ ]*//g;s/ /\n/g;p;}'
}

# The values that option $1 of command $2 can have, as far as they can be listed.
_shardutils_values() {
    local i storage
    case $1 in
    --family) tp-shard families 2> /dev/null | sed 's/ .*//' ;;
    --gpu) mem-estimate gpus --json 2> /dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p' ;;
    -S | --storage) print -rl -- *.(db|log|journal)(N) ;;
    --study)
        for ((i = 2; i < $#words; i++)); do
            case $words[i] in
            -S | --storage) storage=$words[i+1] ;;
            --storage=*) storage=${words[i]#*=} ;;
            esac
        done
        $words[1] show ${storage:+--storage=$storage} 2>&1 > /dev/null |
            sed -n 's/.*choose one with --study: //p' | sed 's/, /\n/g'
        ;;
    --*) $words[1] $2 --help=${1#--} 2> /dev/null ;;
    esac
}

_shardutils() {
    local option
    local -a offers
    if ((CURRENT == 2)); then
        offers=(${(f)"$($words[1] --help 2> /dev/null | _shardutils_commands)"})
        _describe command offers
        return
    fi
    if [[ $words[CURRENT] == --*=* ]]; then
        option=${words[CURRENT]%%=*}
        compset -P '*='
    elif [[ $words[CURRENT] == -* ]]; then
        offers=(${(f)"$($words[1] $words[2] --help 2> /dev/null | _shardutils_options)"})
        _describe option offers
        return
    elif [[ $words[CURRENT-1] == -* ]]; then
        option=$words[CURRENT-1]
    fi
    [[ -z $option ]] || offers=(${(f)"$(_shardutils_values $option $words[2])"})
    if ((#offers)); then
        compadd -a offers
    else
        _files
    fi
}

_shardutils "$@"
