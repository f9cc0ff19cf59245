#!/bin/sh
# options.t - how every program reads its command line
. "${top_srcdir:?}/tests/lib.sh"
PATH=$top_builddir/tests:$PATH

# gives NAME LINE ARGUMENT... - print, given the arguments, succeeds and prints the line
gives() {
    gives_name=$1
    gives_line=$2
    shift 2
    run try-options print "$@"
    if [ "$status" -eq 0 ] && grep -qFx -e "$gives_line" out && [ ! -s err ]; then
        pass "$gives_name"
    else
        fail "$gives_name" "status $status" "$(cat out err)"
    fi
}

# refuses NAME MESSAGE ARGUMENT... - two lines on standard error, none on standard output, status 2
refuses() {
    refuses_name=$1
    printf '%s\n' "try-options: $2" "Try 'try-options print --help' for more." > expected
    shift 2
    run try-options print "$@"
    if [ "$status" -eq 2 ] && cmp -s expected err && [ ! -s out ]; then
        pass "$refuses_name"
    else
        fail "$refuses_name" "status $status" "$(cat out err)"
    fi
}

gives "a value may follow an equals sign" "text a=b" --text=a=b x
gives "a value may be the next word" "text a" --text a x
gives "a value may be empty" "text " --text= x
gives "a value may begin with a hyphen" "text -a" --text -a x
gives "a value may be two hyphens" "command run" --text -- x -- run
gives "a short option's value may be the next word" "text a" -o a x
gives "a short option's value may be joined to it" "text a" -oa x
gives "short flags may be joined" "flags 11" -ab x
gives "short flags may be joined with an option and its value" "text a" -aboa x
gives "options may follow operands" "flags 10" x -a
gives "the last of two values holds" "text b" --text a --text b x
gives "a list keeps every value" "list b" -l a --list=b x
gives "one hyphen is an operand" "operand -" -
gives "sizes have suffixes" "size 1536" --size 1.5KiB x
gives "sizes in powers of ten end in B" "size 2000000" --size 2MB x
gives "the largest number is taken" "seed 18446744073709551615" --seed 18446744073709551615 x
gives "a choice is taken by its name" "colour green" --colour green x
gives "what follows two hyphens is a command" "command -a" x -- run -a
gives "a command may hold two hyphens itself" "command --" x -- run --
refuses "an unknown option is put right" \
    "unknown option '--txet'; did you mean '--text'?" --txet a x
refuses "a far option is not guessed" "unknown option '--elephant'" --elephant x
refuses "an abbreviation is not taken" "unknown option '--tex'; did you mean '--text'?" --tex a x
refuses "an unknown short option is named" "unknown option '-z'" -az x
refuses "a flag takes no value" "--flag takes no value" --flag=1 x
refuses "a missing value is named" "--text needs a value" x --text
refuses "a missing value of a short option is named" "-o needs a value" x -o
refuses "a negative count is refused" "--count: '-1' is not a whole number from 0" -n -1 x
refuses "a number is parsed whole" "--count: '3x' is not a whole number from 0" -n 3x x
refuses "a number too large is refused" \
    "--seed: '18446744073709551616' is not a whole number from 0" --seed 18446744073709551616 x
refuses "a size without a known suffix is refused" "--size: '3QB' is not a size such as 80GiB" \
    --size 3QB x
refuses "infinity is no number" "--rate: 'inf' is not a number" --rate inf x
refuses "a wrong choice names the choices" "--colour: 'blue' is none of red, green" \
    --colour blue x
refuses "a missing operand is an error, and is named" "an operand is missing: OPERAND" -a
refuses "one operand too many is named" "unexpected operand 'z'" w x y z

run try-options operands -- -a --text --
out_is "operand -a
operand --text
operand --" "two hyphens end the options"
run try-options operands
status_is 0 "no operand may be right"
run try-options
err_is "try-options: a command is missing
Try 'try-options --help' for more." "a missing command is an error"
status_is 2 "a missing command is a usage error"
run try-options opernads
err_is "try-options: unknown command 'opernads'; did you mean 'operands'?
Try 'try-options --help' for more." "an unknown command is put right"
run try-options --text
err_is "try-options: unknown option '--text'
Try 'try-options --help' for more." "an option before the command is unknown"
run try-options print --help
out_is "Usage: try-options print [OPTION]... OPERAND... [-- COMMAND]
Print what was given.

  -a, --flag                  a flag
  -b, --other                 another
  -o, --text=TEXT             any text
  -l, --list=TEXT             any number of texts
  -n, --count=N               a number
      --seed=S                a large number
      --size=SIZE             bytes
      --colour=COLOUR         red or green
  -v, --verbose               say more on standard error
  -h, --help                  print this help
  -V, --version               print the version and features

More, which the page explains:
  + --rate=X
See try-options(1)." "help comes from the table"
run try-options print -v x
status_is 0 "every command may say more"
ok "on standard error, at its end" grep -Eqx 'try-options: [0-9.]+ s, at most [0-9.]+ [KM]iB of memory in a process' err
run tp-run generate -v --max_new_tokens=1 --ids 1,2 --backend cpu --threads 1 "$data/models/llama-gqa"
err_has "tp-run: --max-new-tokens is --max-tokens" "what an option is called here"
err_has "llama-gqa: family llama, 1 ranks, 1 of them here, of 1 threads, backend cpu" "and what a model runs on"
err_lines 3 "and nothing else"
run try-options print -a --help --no-such
status_is 0 "help is answered where it stands"
run try-options -V
out_has "try-options (shardutils) " "the version names program and package"
if [ -w /dev/full ]; then
    status=0
    try-options print x > /dev/full 2> err || status=$?
    status_is 4 "output that cannot be written is an error of the machine"
    err_is "try-options: standard output: No space left on device" "and the cause is told"
else
    skip "output that cannot be written is an error of the machine" "no /dev/full"
fi
done_testing
