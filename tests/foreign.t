#!/bin/sh
# foreign.t - every name of another program's option is taken as ours, or answered
. "${top_srcdir:?}/tests/lib.sh"
PATH=$top_builddir/tests:$PATH
tab=$(printf '\t')
model=$data/models/llama-gqa
experts=$data/models/mixtral
head -c 6000 "$bard/heldout.txt" > text
echo 'x: uniform(0, 1)' > s.yaml

# PROGRAM COMMAND OPTION, for each option that help names
for program in tp-run tp-shard mem-estimate pp-partition hpo-sweep; do
    for command in $("$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'); do
        "$program" "$command" --help | grep -o -e '--[a-z0-9-]*' | sed "s/^/$program $command /"
    done
done | awk '{ print $1, $2, substr($3, 3) }' > options

# Each row with a command of each program that has its option, or one that has those of its hint; those
# that show more come first.
plan() {
    foreign-names | awk -F "$tab" '
        BEGIN {
            n = split("generate train plan schedule infer run", first, " ")
            programs = split("tp-run tp-shard mem-estimate pp-partition hpo-sweep", program, " ")
            while ((getline line < "options") > 0) {
                split(line, w, " ")
                has[w[1] " " w[2] " " w[3]] = 1
                if (!seen[w[1] " " w[2]]++)
                    command[w[1]] = command[w[1]] " " w[2]
            }
        }
        function counts(p, c,    rest, word) {
            if (has[p " " c " " $1])
                return 0
            if ($4 != "-")
                return has[p " " c " " $4]
            for (rest = $7; match(rest, /--[a-z0-9-]+/); rest = substr(rest, RSTART + RLENGTH)) {
                word = substr(rest, RSTART + 2, RLENGTH - 2)
                if (!has[p " " c " " word])
                    return 0
            }
            return 1
        }
        function find(p,    k, i, all, c) {
            k = split(command[p], all, " ")
            for (i = 1; i <= n + k; i++) {
                c = i <= n ? first[i] : all[i - n]
                if (!seen[p " " c] || ($3 != "-" && index(" " $3 " ", " " c " ") == 0))
                    continue
                if (counts(p, c))
                    return c
            }
            return ""
        }
        {
            found = 0
            for (i = 1; i <= programs; i++) {
                if ($2 != "-" && index(" " $2 " ", " " program[i] " ") == 0)
                    continue
                if ((c = find(program[i])) == "")
                    continue
                print program[i] FS c FS $0
                found = 1
                if ($4 == "-")
                    break
            }
            if (!found)
                print "-" FS "-" FS $0
        }'
}

# value OPTION - one that may show in what a command prints
value() {
    case $1 in
    lr-schedule) echo cosine ;;
    epochs | eps | dropout) echo 0.5 ;;
    data | eval-data) echo text ;;
    dtype) echo f32 ;;
    schedule) echo GPipe ;;
    recompute) echo full ;;
    kv-dtype) echo bf16 ;;
    stage-layout) echo 'Ett|ttL' ;;
    tp) echo 4 ;;
    pp) echo 3 ;;
    *) echo 2 ;;
    esac
}

# line PROGRAM.COMMAND WORD... - runs the command, quickly, with these words more; all that it printed
# and wrote is in the file got
line() {
    line_of=$1
    shift
    rm -rf run other s.db s.trials
    case $line_of in
    tp-run.generate) set -- generate --ids 1,2,3 --max-tokens 4 "$@" "$model" ;;
    tp-run.train) set -- train -n --data text --seq 256 -o run "$@" "$bard" ;;
    tp-run.bench) set -- bench --tokens 8 --repeat 1 --threads 1 "$@" "$model/none" ;;
    tp-run.program) set -- program "$@" "$experts" ;;
    tp-run.*) set -- "${line_of#*.}" --ids 1,2,3 "$@" "$model" ;;
    tp-shard.families) set -- families "$@" ;;
    tp-shard.plan) set -- plan --tp 2 "$@" "$experts" ;;
    tp-shard.* | pp-partition.split | pp-partition.merge) set -- "${line_of#*.}" "$@" "$model" cut ;;
    pp-partition.plan) set -- plan --pp 2 --json "$@" "$model" ;;
    pp-partition.schedule) set -- schedule --schedule 1f1b --pp 2 --micro-batches 4 --json "$@" ;;
    mem-estimate.infer) set -- infer --seq 16 --json "$@" "$experts" ;;
    mem-estimate.train) set -- train --seq 16 --json "$@" "$experts" ;;
    mem-estimate.plan) set -- plan --gpu a100-80g --gpus 4 --seq 16 --json "$@" "$experts" ;;
    mem-estimate.solve) set -- solve --for batch --gpu a100-80g --seq 16 --json "$@" "$experts" ;;
    mem-estimate.*) set -- "${line_of#*.}" "$@" ;;
    hpo-sweep.run) set -- run -S s.db --trials 1 --seed 1 --devices 0,1 "$@" s.yaml -- echo '{x}' ;;
    hpo-sweep.*) set -- "${line_of#*.}" -S s.db "$@" s.yaml ;;
    esac
    run "${line_of%%.*}" "$@"
    {
        echo "status $status"
        cat out err
        cat run/run.json other/run.json 2> /dev/null
        [ ! -f s.db ] || hpo-sweep show -S s.db 2> /dev/null | cut -d ' ' -f 1
    } | sed 's/"[a-z_]*seconds*[a-z_]*":[0-9.e+-]*//g' > got
}

# same NAME PROGRAM.COMMAND THEIRS OURS - do both words, with what follows them, make the same?  Whether that
# differs from what is made without them is in $shows.
same() {
    same_ours=ours.$(printf '%s\n' "$2 $4" | tr -c 'a-zA-Z0-9.\n' _)
    # shellcheck disable=SC2086 # words are wanted
    {
        [ -f "$same_ours" ] || { line "$2" $4 && mv got "$same_ours"; }
        [ -f "plain.$2" ] || { line "$2" && mv got "plain.$2"; }
        line "$2" $3
    }
    shows=1
    ! cmp -s got "plain.$2" || shows=0
    if cmp -s "$same_ours" got; then pass "$1"; else fail "$1" "$(diff "$same_ours" got)"; fi
}

# walk PROGRAM COMMAND NAME PROGRAMS COMMANDS OPTION FIXED VALUES HINT
walk() {
    walk_takes="$1 $2 takes --$3 as --$6"
    if [ "$1" = - ]; then
        fail "--$3 counts somewhere"
    elif [ "$6" = - ]; then
        case $3 in ?) walk_name=-$3 ;; *) walk_name=--$3 ;; esac
        line "$1.$2" "$walk_name" 1
        printf '%s\n' "$1: $walk_name: $9" "Try '$1 $2 --help' for more." > expected
        if [ "$status" -eq 2 ] && [ ! -s out ] && cmp -s expected err; then
            pass "$1 $2 answers --$3"
        else
            fail "$1 $2 answers --$3" "$(cat out err)"
        fi
    elif [ "$7" != - ]; then
        same "$walk_takes $7" "$1.$2" "--$3" "--$6 $7"
    elif [ "$6" = force ]; then
        same "$walk_takes" "$1.$2" "--$3" "--$6"
    else
        walk_value=$(value "$6")
        same "$walk_takes" "$1.$2" "--$3 $walk_value" "--$6 $walk_value"
        if [ "$shows" -eq 0 ]; then
            # a value that is refused shows whose it is
            same "and in what is wrong with its value" "$1.$2" "--$3=none" "--$6=none"
            case $6 in output | study) ;; *) ok "which is told" test "$shows" -eq 1 ;; esac
        fi
        for walk_pair in $(printf '%s\n' "$8" | tr , ' '); do
            [ "$8" != - ] || break
            same "and its ${walk_pair%=*} as ${walk_pair#*=}" "$1.$2" \
                "--$3 ${walk_pair%=*}" "--$6 ${walk_pair#*=}"
        done
    fi
}

plan > rows
ok "other programs' names are a table of more than 100" test "$(cut -f 3 rows | sort -u | wc -l)" -gt 100
while IFS=$tab read -r program command name programs commands option fixed values hint; do
    walk "$program" "$command" "$name" "$programs" "$commands" "$option" "$fixed" "$values" "$hint"
done < rows
foreign-names | cut -f 1-4 | sort | uniq -d > twice
ok "no name stands twice" test ! -s twice
foreign-names --page > want
sed -n '/^\.\\" tests\/foreign-names --page: begin/,/^\.\\" tests\/foreign-names --page: end/p' \
    "$top_srcdir/man/shardutils.7" | sed '1d;$d' > got
ok "shardutils(7) has the table" cmp want got

# how a name may be written
line tp-run.generate --max-tokens 2
mv got two
line tp-run.generate --max_new_tokens=2
ok "an underscore is a hyphen" cmp two got
line tp-run.generate --max_tokens 2
ok "in our names, too" cmp two got
run tp-run generate -tp 2 --ids 1,2,3 --max-tokens 2 "$model"
status_is 0 "a long name may have one hyphen"
run tp-run generate -temp none "$model"
err_is "tp-run: --temperature: 'none' is not a number
Try 'tp-run generate --help' for more." "so may another's: --temp is --temperature, and never --tp"
run tp-run generate -ngl 99 "$model"
err_is "tp-run: -ngl: leave it out: a GPU holds every layer; see --pp for several devices
Try 'tp-run generate --help' for more." "or it is answered as it was written"
run tp-run generate -n 5 "$model"
err_is "tp-run: -n: see --max-tokens
Try 'tp-run generate --help' for more." "a single letter, too"
run tp-run generate -pp 2 "$model"
err_is "tp-run: unexpected operand '$model'; '-pp' is -p p: write --pp
Try 'tp-run generate --help' for more." "what reads as short options is taken so, and told"
run tp-run generate "$model" 'a text'
err_is "tp-run: unexpected operand 'a text'; text to continue follows --prompt
Try 'tp-run generate --help' for more." "a prompt without an option is answered"
run tp-run generate --t "$model"
err_is "tp-run: unknown option '--t'; it begins --template, --template-arg, --temperature, --top-k, --top-p, --typical-p, ...
Try 'tp-run generate --help' for more." "the options that begin so are named"
run tp-run train --learning-rat 1 "$model"
err_is "tp-run: unknown option '--learning-rat'; did you mean '--lr'?
Try 'tp-run train --help' for more." "a misspelt name of another program leads to ours"
run pp-partition schedule --schedule 1F1B --pp 2 --micro-batches 4 --csv
mv out capitals
run pp-partition schedule --schedule 1f1b --pp 2 --micro-batches 4 --csv
ok "a schedule may be in capitals" cmp capitals out
run tp-run train -n --data text --seq 256 --pipeline 1F1B "$bard"
status_is 0 "in training, too"
run tp-run train -q --data text --seq 16 --steps 1 --global-batch 1 -o run "$bard"
run tp-run train -q --data text --seq 16 --steps 1 --global-batch 1 -o run --overwrite_output_dir False "$bard"
status_is 2 "a flag of others may be false"
run tp-run train -q --data text --seq 16 --steps 1 --global-batch 1 -o run --overwrite_output_dir True "$bard"
status_is 0 "or true"
run tp-run train -q --data text --seq 16 --steps 1 --global-batch 1 -o run --overwrite_output_dir=2 "$bard"
err_has "'2' is not True or False" "but nothing else"

# help
for program in "$top_builddir"/bin/*; do
    program=${program##*/}
    "$program" --help > want
    run "$program" help
    ok "$program help is $program --help" cmp want out
    command=$("$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' | head -n 1)
    "$program" "$command" --help > want
    run "$program" help "$command"
    ok "$program help $command is $program $command --help" cmp want out
done
run tp-run help trian
err_is "tp-run: unknown command 'trian'; did you mean 'train'?
Try 'tp-run --help' for more." "help of no command is answered"

# epochs, and micro-batches of a replica
run tp-run train -n --data text --seq 256 --micro-batch 2 --micro-batches 3 "$bard"
out_has "step:      6 samples of up to 256 tokens, in 3 micro-batches of 2 on 1 replicas" "micro-batches make the global batch"
run tp-run train -n --data text --seq 256 --dp 2 --micro-batch 2 --micro-batches 3 --global-batch 8 "$bard"
err_is "tp-run: --micro-batches 3: times --micro-batch 2 times dp 2 is not the global batch, 8
Try 'tp-run train --help' for more." "or agree with it"
run tp-run train -n --data text --seq 256 --dp 2 --per-device-train-batch-size 16 "$bard"
out_has "step:      32 samples of up to 256 tokens, in 1 micro-batches of 16 on 2 replicas" \
    "the batch of a device alone is one micro-batch a step, as in Trainer"
run tp-run train -n --data text --seq 256 --global-batch 2 "$bard"
one=$(sed -n 's/^steps: *\([0-9]*\),.*/\1/p' out)
run tp-run train -n --data text --seq 256 --global-batch 2 --num-train-epochs 2.5 "$bard"
out_has "steps:     $(((one * 5 + 1) / 2))," "epochs make steps, and part of one is one"
run tp-run train -n --data text --epochs 2 --steps 3 "$bard"
err_has "--epochs and --steps: one of them says how long to train" "but not beside steps"
run tp-run train -n --data text --epochs 0 "$bard"
err_has "--epochs 0: must be above 0" "above 0"
done_testing
