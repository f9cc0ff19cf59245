# completion.fish - completes the programs of shardutils from what their --help says

# The values that option argv[3] of the program and its command can have, as far as they can be
# listed; the words of the line follow.
function __shardutils_values
    set -l storage
    switch $argv[3]
        case --family
            tp-shard families 2>/dev/null | string replace -r ' .*' ''
        case --gpu
            mem-estimate gpus --json 2>/dev/null | string replace -rf '.*"name":"([^"]*)".*' '$1'
        case -S --storage
            for file in *.db *.log *.journal
                echo $file
            end
        case --study
            for i in (seq 4 (count $argv))
                if contains -- $argv[$i] -S --storage
                    set storage --storage=$argv[(math $i + 1)]
                else if string match -q -- '--storage=*' $argv[$i]
                    set storage $argv[$i]
                end
            end
            $argv[1] show $storage 2>&1 >/dev/null | string replace -rf '.*choose one with --study: ' '' | string split ', '
        case '--*'
            $argv[1] $argv[2] --help=(string sub -s 3 -- $argv[3]) 2>/dev/null
    end
end

function __shardutils_offers
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l tab (printf '\t')
    if test (count $words) -eq 1
        $words[1] --help 2>/dev/null | string replace -rf '^  ([a-z][a-z-]*)  +(.*)' "\$1$tab\$2"
        return
    end
    if string match -q -- '--*=*' $word
        set -l option (string replace -r '=.*' '' -- $word)
        for value in (__shardutils_values $words[1] $words[2] $option $words)
            echo -- $option=$value
        end
    else if string match -q -- '-*' $word
        set -l help ($words[1] $words[2] --help 2>/dev/null)
        string replace -rf '^  .{4}(--[a-z0-9-]*)[^ ]*  *(.*)' "\$1$tab\$2" -- $help
        string replace -rf '^  \+ (.*)' '$1' -- $help | string replace -ar '=[^ ]*' '' | string split ' '
    else if string match -q -- '-*' $words[-1]
        __shardutils_values $words[1] $words[2] $words[-1] $words
    end
end

for program in hpo-sweep mem-estimate pp-partition tp-run tp-shard
    complete -c $program -a '(__shardutils_offers)'
end
