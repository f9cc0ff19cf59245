#!/bin/sh
# hpo-sweep.t - studies from the shell: ask and tell, run, prune, and what is refused
. "$top_srcdir/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "hpo-sweep keeps studies" "built without SQLite or YAML"
    done_testing
    exit
fi

run hpo-sweep --version
out_has "+pcre2 +libpq" "--version names what values are matched with, and PostgreSQL's library"

cat > s.yaml << 'EOF'
x: uniform(-5, 5)
opt: choice([sgd, adam])
m: uniform(0, 1) if opt == sgd
EOF

run hpo-sweep ask s.yaml --seed 1 --json
status_is 0 "ask begins the study and starts a trial"
out_has '{"type": "trial", "trial": 0, "params": {"x": ' "ask prints the trial and its parameters"
ok "the storage is beside the sweep file" test -f s.db
run hpo-sweep tell -S s.db 0 1.5
status_is 0 "tell finishes the trial"
run hpo-sweep tell -S s.db 0 1.5
status_is 3 "a finished trial stays as it is"
err_is "hpo-sweep: trial 0 is finished (COMPLETE)" "and the error says so"
run hpo-sweep tell -S s.db 7 1
status_is 3 "a trial that does not exist is refused"
run hpo-sweep enqueue s.yaml x=1 opt=adam
status_is 0 "parameters are enqueued"
run hpo-sweep ask s.yaml --json
out_is '{"type": "trial", "trial": 1, "params": {"x": 1.0, "opt": "adam"}}' \
    "the next trial has them"
run hpo-sweep enqueue s.yaml x=9
status_is 2 "a value outside its distribution is refused"
run hpo-sweep tell -S s.db --state failed 1
run hpo-sweep show -S s.db
ok "show lists every trial, below a header" \
    test "$(awk '{ print $1, $2, $3 }' out | tr '\n' ' ')$(awk 'NR == 3 { print $4, $5 }' out)" = \
    "trial state value 0 COMPLETE 1.5 1 FAIL - 1 adam"
run hpo-sweep best -S s.db --json
out_has '"trial": 0, "state": "COMPLETE", "values": [1.5]' "best prints the best"

# What show prints, and how a study is named.
mkdir table
cat > table/t.yaml << 'EOF'
lr: loguniform(1e-5, 1)
opt: choice([a, "b\nc\td"])
m: uniform(0, 1) if opt == a
EOF
(
    cd table || exit
    hpo-sweep run t.yaml --seed 1 --trials 6 --metric loss -- echo '{lr}'
    hpo-sweep run t.yaml -q --trials 8 --max-failures 0 -- sh -c 'exit 7'
    hpo-sweep enqueue t.yaml lr=0.5 opt=a
)
cd table || exit 99
run hpo-sweep show
status_is 0 "the only study of the directory is meant where none is named"
ok "a trial is a line, whatever its values" test "$(wc -l < out)" = 10
ok "the header names objective and parameters" test "$(head -n 1 out | tr -s ' ')" = "trial state loss lr opt m reason"
ok "what is empty is a dash, what waits shows what it is to be, why it failed is at the end" \
    test "$(sed -n '8p;10p' out | tr -s ' ' | cut -d ' ' -f 2-4,6,8- | tr '\n' ';')" = "6 FAIL - a exit status 7;8 WAITING - a;"
ok "numbers are short" sh -c '! grep -E "[0-9.]{12}" out'
cp out shown
for how in "t.yaml" "t.db" "-S t.db" "./t.db --study t" "sqlite:///t.db"; do
    run hpo-sweep show $how
    ok "the same study is named by $how" cmp shown out
done
run hpo-sweep show --top 2 t.yaml
ok "--top lists the best" test "$(awk '{ print $3 }' out | tr '\n' ' ')" = \
    "loss $(hpo-sweep show --state complete --tsv | tail -n +2 | cut -f 3 | sort -g | head -n 2 | tr '\n' ' ')"
run hpo-sweep show --sort=-lr --state complete --precision 3 --tsv
ok "--sort goes by a parameter, backwards too" sh -c 'tail -n +2 out | cut -f 4 > lrs; sort -gr lrs | cmp lrs'
ok "--precision says how many digits" sh -c '! grep -qE "[1-9][0-9]{3}" lrs'
ok "--tsv has a tab between two columns" test "$(head -n 1 out)" = "trial	state	loss	lr	opt	m	reason"
run hpo-sweep show --sort none
status_is 2 "an unknown key is refused"
run hpo-sweep show --state ended
status_is 2 "and so is an unknown state"
run hpo-sweep best --shell
# shellcheck disable=SC1091
lr='' && . ./out
ok "best --shell is read by a shell" test "$(hpo-sweep best --format 'a={lr} {value} {trial}')" = \
    "a=$lr $lr $(hpo-sweep best | awk '{ print $1 }')"
run hpo-sweep best --format '{lrr}'
err_has "no parameter 'lrr'; did you mean 'lr'?" "a template names the nearest parameter"
run hpo-sweep importance t.yaml
status_is 0 "importance takes a sweep file"
run hpo-sweep pareto t.db
status_is 0 "and pareto a storage"
run hpo-sweep plot
err_has "there are history, front, reports, parallel, importance" "plot without a kind lists the kinds"
cp t.db u.db
run hpo-sweep best
err_has "which study? name one of t.db, u.db" "candidates are listed where there are several"
printf 'x: 1\n' > none.yaml
run hpo-sweep best none.yaml
err_is "hpo-sweep: none.yaml: the sweep has not begun: there is no none.db" "a sweep without a study is named"
status_is 3 "as bad input"
mkdir empty
run sh -c 'cd empty && hpo-sweep show'
err_has "there is none here" "where there is none, that is said"
cd .. || exit 99

# Values that are infinite, or none.
printf 'x: choice([1, 2, 3, 4])\n' > inf.yaml
run hpo-sweep ask inf.yaml --sampler grid
run hpo-sweep best inf.yaml
status_is 1 "no best without a complete trial"
err_is "hpo-sweep: no trial of 'inf' is complete, of 1" "which is said"
for value in inf 5; do
    hpo-sweep ask inf.yaml --sampler grid > asked
    hpo-sweep tell -S inf.db "$(sed -n 's/^trial.//p' asked)" $value
    run hpo-sweep best inf.yaml
    out_has "COMPLETE  $(printf %12s $value)" "the best is $value"
    [ $value = 5 ] || err_is "hpo-sweep: no trial of 'inf' has a finite value" "infinite ones are said to be"
done
err_empty "a finite one is not"
hpo-sweep ask inf.yaml --sampler grid > asked
hpo-sweep tell -S inf.db 3 -inf
run hpo-sweep best inf.yaml
out_has " 5  x=3" "and is preferred to any other"
run hpo-sweep tell -S inf.db 0 nan
status_is 0 "nan is told"
err_is "hpo-sweep: trial 0: nan is no value: the trial is recorded as FAIL" "and recorded as a failure"
hpo-sweep show inf.db --json > out
out_has '"state": "FAIL", "values": [], "params": {"x": 1}' "that has no value"

cat > f.sh << 'EOF'
#!/bin/sh
echo "trial at $1"
awk -v x="$1" 'BEGIN { print (x - 1) ^ 2 }'
EOF
chmod +x f.sh
run hpo-sweep run s.yaml --study tpe --seed 2 --trials 40 -j 2 -- ./f.sh '{x}'
status_is 0 "run reaches its trials"
err_lines 1 "and ends with a line"
err_has "hpo-sweep: 40 complete; best " "of what became of them"
err_has " (trial $(hpo-sweep best s.yaml --study tpe --format '{trial}')): x=" "and of the best, with its parameters"
run hpo-sweep run -q s.yaml --study quiet --seed 2 --trials 2 -- ./f.sh '{x}'
err_empty "but not under -q"
trials -S s.db --study tpe > list
ok "all trials are complete" test "$(grep -c COMPLETE list)" = 40
run hpo-sweep best -S s.db --study tpe
ok "the search comes near the optimum" awk '{ exit !($3 < 0.05) }' out
hpo-sweep run s.yaml --study random --sampler random --seed 2 --trials 60 -- ./f.sh '{x}'
hpo-sweep importance -S s.db --study random > list
ok "the parameter that matters is found" test "$(sed -n '1s/.*  //p' list)" = x
run hpo-sweep run s.yaml --study tpe --trials 40 -- false
status_is 0 "a finished sweep is left alone"
ok "a trial has its directory" test -f tpe.trials/000039/stdout
ok "parameters are in params.json" grep -q '"x": ' tpe.trials/000039/params.json

for sampler in random qmc; do
    for jobs in 1 3; do
        hpo-sweep run s.yaml --study $sampler$jobs --sampler $sampler --seed 5 --trials 12 \
            -j $jobs -- echo '{x}'
        trials -S s.db --study $sampler$jobs > $sampler$jobs.list
    done
    ok "draws of $sampler do not depend on the number of jobs" cmp ${sampler}1.list ${sampler}3.list
done

printf 'a: choice([1, 2])\nb: randint(0, 3)\n' > grid.yaml
run hpo-sweep run grid.yaml --sampler grid -- echo 'at-{a}' '{b}'
status_is 0 "a grid needs no budget"
trials -S grid.db | cut -c 23- | sort > list
ok "and every point is tried once" test "$(uniq list | wc -l) $(wc -l < list)" = "6 6"
run hpo-sweep ask grid.yaml --sampler grid
status_is 1 "with nothing left to draw, ask says no"

printf 'w: choice(["a b", "$(touch pwned)", "it'"'"'s"])\n' > words.yaml
hpo-sweep run words.yaml --sampler grid --direction maximize -- \
    sh -c 'printf "%s\n" "$1" > "$HPO_TRIAL_DIR/word"; echo 1' sh '<{w}>'
ok "a value with blanks arrives as one word" grep -qx '<a b>' words.trials/000000/word
ok "a value is never run by a shell" test ! -e pwned
run hpo-sweep run words.yaml --study sh --sampler grid --shell -- 'echo "$HPO_w" >&2; echo 1'
ok "with --shell values come in the environment" grep -qx "it's" sh.trials/000002/stderr

cat > train.sh << 'EOF'
#!/bin/sh
for step in 0 1 2 3 4 5 6 7 8 9; do
    echo "$step $1" >> "$HPO_REPORT"
    [ "$1" = 1 ] || sleep 0.3
done
echo "$1"
EOF
chmod +x train.sh
printf 'x: choice([1, 9])\n' > prune.yaml
for x in 1 1 9; do hpo-sweep enqueue prune.yaml x=$x; done
hpo-sweep run prune.yaml --pruner median:startup=2 --trials 3 -- ./train.sh '{x}'
trials -S prune.db > list
ok "a trial that reports worse values than the median is stopped" \
    test "$(awk '{ print $2 }' list | tr '\n' ' ')" = "COMPLETE COMPLETE PRUNED "
hpo-sweep ask prune.yaml > /dev/null
hpo-sweep report -S prune.db 3 0 9
run hpo-sweep should-prune -S prune.db 3
status_is 0 "should-prune says yes with status 0"
hpo-sweep report -S prune.db 3 0 0.5
run hpo-sweep should-prune -S prune.db 3
status_is 1 "and no with status 1"
cat > asking.sh << 'EOF'
#!/bin/sh
report() {
    hpo-sweep report -S prune.db --study asking "$HPO_TRIAL_NUMBER" 0 "$1"
}
report "$1"
hpo-sweep should-prune -S prune.db --study asking "$HPO_TRIAL_NUMBER" > /dev/null || { echo "$1"; exit 0; }
report 0.5 # as if the others had moved
exit "${2-0}"
EOF
chmod +x asking.sh
for x in 1 1 9 9; do hpo-sweep enqueue prune.yaml -S prune.db --study asking x=$x; done
hpo-sweep run prune.yaml -S prune.db --study asking --pruner median:startup=2 --trials 3 -- ./asking.sh '{x}'
trials -S prune.db --study asking > list
ok "a trial that was told to stop, and did, is pruned whatever the pruner says later" \
    test "$(awk '{ print $2 }' list | tr '\n' ' ')" = "COMPLETE COMPLETE PRUNED WAITING "
# on a slow machine `run` itself may have ended the trial before
for n in 4 5 6 7 8 9; do
    run hpo-sweep run prune.yaml -S prune.db --study asking --trials $n -- ./asking.sh '{x}' 3
    trials -S prune.db --study asking > list
    [ "$(awk -v n=$n 'NR == n { print $2 }' list)" = PRUNED ] || break
    hpo-sweep enqueue prune.yaml -S prune.db --study asking x=9
done
if [ "$(awk -v n=$n 'NR == n { print $2 }' list)" = PRUNED ]; then
    skip "one that then fails has failed" "the run was quicker each time"
else
    ok "one that then fails has failed" test "$(awk -v n=$n 'NR == n { print $2 }' list)" = FAIL
fi

run hpo-sweep run s.yaml --study bad --trials 9 -- false
status_is 1 "three failures in a row end the run"
run hpo-sweep run s.yaml --study bad -- true
status_is 2 "a sampler without an end needs a budget"
run hpo-sweep run s.yaml --trials 1 -- no-such-program
status_is 2 "the program is looked up before the first trial"
run hpo-sweep run s.yaml --trials 1 -- echo '{y}'
err_has "'{y}': no parameter 'y'; did you mean" "an unknown name is refused"
sed 's/-5, 5/-5, 4/' s.yaml > t.yaml
run hpo-sweep ask t.yaml -S s.db --study tpe
status_is 3 "another search space is refused"
err_has "x was " "with the difference"
# refused LINE CAUSE TEXT NAME - TEXT is a sweep file whose parameter x is wrong in that line
refused() {
    printf '%b' "$3" > bounds.yaml
    run hpo-sweep ask bounds.yaml
    if [ "$status" = 3 ] && grep -q "bounds.yaml:$1:[0-9]*: x: $2\$" err; then
        pass "$4 is refused with file, line and key"
    else
        fail "$4 is refused with file, line and key" "status $status" "$(cat err)"
    fi
}
above='the lower bound is above the upper bound'
log='a logarithmic scale needs a lower bound above zero'
no_step='the step is not above zero'
refused 2 "$above" 'y: 1\nx: uniform(1, 0)\n' 'uniform(1, 0)'
refused 1 "an empty range.*" 'x: randint(5, 2)\n' 'randint(5, 2)'
refused 1 "$log" 'x: loguniform(0, 1)\n' 'loguniform from zero'
refused 1 "$log" 'x: lograndint(0, 9)\n' 'lograndint from zero'
refused 1 "$no_step" 'x: quniform(0, 1, 0)\n' 'quniform without a step'
refused 1 "$no_step" 'x: quniform(0, 1, -1)\n' 'quniform with a step below zero'
refused 1 'there are no choices' 'x: choice([])\n' 'choice of nothing'
p='method: random\nparameters:\n  x:\n'
refused 4 "'min' is above 'max'" "$p    min: 3.0\n    max: 1.0\n" "W&B's min above max"
refused 4 "'min' is above 'max'" "$p    min: 9\n    max: 1\n" "W&B's whole min above max"
refused 5 "a logarithmic scale needs 'min' above zero" \
    "$p    distribution: log_uniform_values\n    min: 0\n    max: 1.0\n" "W&B's log from zero"
refused 5 "'q' is not above zero" "$p    distribution: q_uniform\n    q: 0\n    min: 0\n    max: 1.0\n" \
    "W&B's q of zero"
refused 4 'there are no choices' "$p    values: []\n" "W&B's empty list of values"
p='[{"name": "x",\n'
refused 1 "$above" "$p"'"type": "double", "bounds": {"min": 2, "max": 1}}]' "SigOpt's min above max"
refused 1 "$above" "$p"'"type": "int", "bounds": {"min": 2, "max": 1}}]' "SigOpt's whole min above max"
refused 1 "$log" "$p"'"type": "double", "transformation": "log", "bounds": {"min": 0, "max": 1}}]' \
    "SigOpt's log from zero"
refused 1 'there are no choices' "$p"'"type": "categorical", "categorical_values": []}]' \
    "SigOpt's empty list of values"
p='{"x":\n{"name": "'
refused 2 "$above" "$p"'FloatDistribution", "attributes": {"low": 2, "high": 1}}}' "Optuna's low above high"
refused 2 "$above" "$p"'IntDistribution", "attributes": {"low": 4, "high": 1}}}' "Optuna's whole low above high"
refused 2 "$log" "$p"'FloatDistribution", "attributes": {"low": 0, "high": 1, "log": true}}}' \
    "Optuna's log from zero"
refused 2 "$log" "$p"'IntDistribution", "attributes": {"low": 0, "high": 9, "log": true}}}' \
    "Optuna's whole log from zero"
refused 2 "$no_step" "$p"'FloatDistribution", "attributes": {"low": 0, "high": 1, "step": 0}}}' \
    "Optuna's step of zero"
refused 2 "$no_step" "$p"'IntDistribution", "attributes": {"low": 0, "high": 1, "step": -1}}}' \
    "Optuna's step below zero"
refused 2 'there are no choices' "$p"'CategoricalDistribution", "attributes": {"choices": []}}}' \
    "Optuna's empty list of choices"
refused 1 'a list: write uniform(0, 1), or loguniform, for a range, choice(\[0, 1\]) for two values' 'x: [0, 1]\n' \
    'a list for a range'
refused 1 'write x: loguniform(0.001, 1)' 'x: {low: 0.001, high: 1, scale: log}\n' 'an object for a range'
refused 1 'write x: randint(1, 9)' 'x: {type: int, min: 1, max: 8}\n' 'and one of integers'
refused 4 'write distribution: log_uniform_values for a logarithmic scale' \
    'method: random\nparameters:\n  x:\n    scale: log\n    min: 1\n    max: 2\n' "W&B with a scale"
p='n: randint(1, 6)\nu: uniform(0, 1)\nx: choice([1, 2]) if '
refused 3 "'n' is never >= 9" "${p}n >= 9\n" "a condition that never holds"
refused 3 "9 is no value of 'n'" "${p}n in [3, 9]\n" "a number outside its range"
refused 3 "'u' has no end of values: compare it by < or >" "${p}u == 0.5\n" "one value of a continuous range"
refused 3 '"a" is not a number' "${p}n > a\n" "a comparison with a word"
printf 'x: choice(8, 16, 32)\n' > choice.yaml
hpo-sweep run choice.yaml --sampler grid -- echo '{x}'
ok "choice(8, 16, 32) is a list" test "$(trials choice.yaml | awk '{ print $4 }' | tr '\n' ' ')" = "8 16 32 "

# Conditions on numbers.
cat > cond.yaml << 'EOF'
n: randint(1, 6)
a: choice([x, y]) if n >= 3
b: choice([1, 2, 3]) if n in [2, 5]
c: choice([7, 8]) if b > 1
d: choice([0, 1]) if n != 4
EOF
hpo-sweep run cond.yaml --sampler grid -- echo 1
hpo-sweep show cond.yaml --tsv | tail -n +2 > list
ok "a grid knows how many points conditions on numbers leave" \
    test "$(wc -l < list) $(cut -f 4- list | sort -u | wc -l)" = "38 38"
ok "each of them as they say" awk -F '\t' 'NR == 1 { next }
    { n = $4; d = $5; b = $6; c = $7; a = $8 }
    (n >= 3) != (a != "") || (n == 2 || n == 5) != (b != "") || (b > 1) != (c != "") || (n != 4) != (d != "") {
        print; bad = 1 } END { exit bad }' list
printf 'u: uniform(0, 1)\nhigh: choice([1, 2]) if u > 0.5\nlow: uniform(0, 1) if u <= 0.5\n' > split.yaml
for sampler in tpe random qmc; do
    hpo-sweep run split.yaml --study $sampler --sampler $sampler --seed 1 --trials 30 -- echo 'u={u}'
    hpo-sweep show split.yaml --study $sampler --json > list
    ok "$sampler draws one of two branches at a number" \
        test "$(grep -c '"high"' list) $(grep -c '"low"' list) $(grep '"high"' list | grep -c '"low"')" = \
        "$(grep -c '"u": 0\.[5-9]' list) $(grep -c '"u": 0\.[0-4]' list) 0"
done
sed 's/> 0.5/> 0.25/' split.yaml > other.yaml
run hpo-sweep ask other.yaml -S split.db --study tpe
err_has "the condition of high was {\"u\":[[0.5" "another number is another space"

# what is allowed and hardly meant
printf 'method: random\nparameters:\n  x: {min: 0.0, max: 1.0}\n  n: {min: 4, max: 4}\n' > doubt.yaml
run hpo-sweep run doubt.yaml --trials 2 -- echo 1
status_is 0 "a command that uses no parameter runs"
err_has "hpo-sweep: the command uses no parameter: it names none, such as {x}, and has no HPO_ variable" "which is doubted"
err_has "hpo-sweep: the range of n has one value, 4" "as a range of one value is"
err_lines 3 "once for all trials"
run hpo-sweep run doubt.yaml --trials 2 -- echo 1
err_empty "and not where nothing is left to run"
run hpo-sweep run -q doubt.yaml --trials 3 -- echo 1
err_empty "nor under -q"
echo 'echo "$HPO_X"' > reads.sh
for command in 'sh reads.sh' 'sh -c echo$HPO_N' 'echo {n}'; do
    # shellcheck disable=SC2086 # words
    hpo-sweep run doubt.yaml --study "${command%% *}$(printf %s "$command" | wc -c)" --trials 1 -- $command 2> err
    ok "'$command' uses one" sh -c '! grep -q "uses no parameter" err'
done
hpo-sweep run doubt.yaml --study shell --trials 1 --shell -- 'exec sh reads.sh' 2> err
ok "so does a script in a line of the shell" sh -c '! grep -q "uses no parameter" err'
mkdir -p far/lib
echo 'json.load(open(trial + "/params.json"))' > file.py
echo 'exec python3 -u file.py' > wrapper.sh
echo 'from lib.settings import read' > far/imports.py
seen=0
echo 'prefix = "HPO_"' > far/lib/settings.py
for command in 'true file.py' 'true -m file' 'true --script=file.py' 'sh wrapper.sh' 'true far/imports.py'; do
    # shellcheck disable=SC2086 # words
    hpo-sweep run doubt.yaml --study "seen$((seen += 1))" --dry-run --trials 1 -- $command > out 2> err
    ok "nothing is said of '$command', which leads to one that does" sh -c '! grep -q "uses no parameter" err'
done
echo 'exec true' > blind.sh
run hpo-sweep run doubt.yaml --study blind --dry-run --trials 1 -- sh blind.sh
status_is 0 "a dry run says what it would do where there are studies already"
out_has "drawn by random; study 'blind' of doubt.db, which exists" "and what draws"
err_has "the command uses no parameter" "but of a script that leads nowhere"

# lists and objects
printf 'method: grid\nparameters:\n  k: {values: [[3, 3], [5, 5], {a: "b c"}]}\n  c: {value: [1, 2]}\n' > nested.yaml
run hpo-sweep run -q nested.yaml -- sh -c 'echo "$1 $2" > "$HPO_TRIAL_DIR/words"; echo 1' - '{k}' '{c}'
status_is 0 "a value may be a list or an object"
ok "which a command gets as JSON" test "$(cat nested.trials/*/words | tr '\n' ' ')" = '[3,3] [1,2] [5,5] [1,2] {"a":"b c"} [1,2] '
ok "its parameters as what they are" test "$(cat nested.trials/000002/params.json)" = '{"k": {"a":"b c"}, "c": [1,2]}'
run hpo-sweep run -q nested.yaml -- echo '{k}'
status_is 0 "and the study goes on with them"
printf 'method: grid\nparameters:\n  k: {values: [(3,3), (5,5)]}\n' > tuple.yaml
run hpo-sweep run -q tuple.yaml -- echo '{k}'
status_is 3 "tuples of Python are refused"
err_has "tuple.yaml:3:16: k: '(3' is a part of a tuple of Python" "by name"
printf 'method: grid\nparameters:\n  k: {values: [(a), "(3", b]}\n' > paren.yaml
run hpo-sweep run -qn paren.yaml -- echo '{k}'
status_is 0 "a text that begins with a bracket is a text"

# choices that change
printf 'opt: choice([a, b])\n' > more.yaml
hpo-sweep run -q more.yaml --sampler random --seed 3 --trials 6 -- sh -c 'echo "${#1}"' - '{opt}'
printf 'opt: choice([a, b, c])\n' > more.yaml
run hpo-sweep run -q more.yaml --trials 9 -- sh -c 'echo "${#1}"' - '{opt}'
status_is 3 "a choice more is another space"
err_has "; run --study NEW --warm-start more takes its trials over" "and what to do about it is said"
run hpo-sweep run more.yaml --study more2 --warm-start more --sampler random --trials 1 -S more.db -- sh -c 'echo "${#1}"' - '{opt}'
status_is 0 "which works"
ok "with all its trials" test "$(trials -S more.db --study more2 | wc -l)" -eq 7

# A study may begin with what another has found.
printf 'x: uniform(-5, 5)\nopt: choice([a, b])\n' > old.yaml
hpo-sweep run old.yaml --seed 1 --sampler random --trials 20 -- echo 'x={x}'
hpo-sweep run old.yaml -q --trials 21 --max-failures 0 -- false
printf 'x: uniform(-5, 9)\nopt: choice([b, a, c])\n' > new.yaml
run hpo-sweep run new.yaml --warm-start old.yaml --seed 2 --sampler random --trials 3 -- echo 'x={x}'
status_is 0 "a study begins with another's trials"
err_lines 1 "all of them"
ok "which do not count for --trials" test "$(trials new.yaml --state complete | wc -l)" = 23
ok "they are the same" test "$(hpo-sweep show new.yaml --tsv | sed -n 2,21p | cut -f 3- | cksum)" = \
    "$(hpo-sweep show old.yaml --tsv | sed -n 2,21p | cut -f 3- | cksum)"
run hpo-sweep run new.yaml --warm-start old.db --sampler random --trials 4 -- echo 'x={x}'
ok "once" test "$(trials new.yaml --state complete | wc -l)" = 24
printf 'x: uniform(0, 9)\n' > half.yaml
n=$(hpo-sweep show old.db --tsv --state complete --precision 17 | awk -F '\t' 'NR > 1 && $4 >= 0' | wc -l)
run hpo-sweep run half.yaml -S new.db --warm-start new --sampler random --trials 1 -- echo 5
err_has "24 trials of 'new' are in the space and taken over" "those outside the space are left out"
ok "and some are" test "$(trials new.db --study half | wc -l)" -gt "$n"
run hpo-sweep run half.yaml -S new.db --study third --warm-start none --trials 1 -- echo 1
err_has "--warm-start: no study 'none' in new.db" "a study that is not there is refused"
run hpo-sweep run half.yaml -S new.db --study fourth --direction maximize --warm-start new --trials 1 -- echo 1
err_has "study 'new' has other objectives" "and one with other objectives"
run hpo-sweep run s.yaml --study tpe --warm-start random --trials 60 -- echo 1
err_has "--warm-start is for a study that begins: 'tpe' has 40 trials" "and a study that has begun"

# Ranges may widen; priors may not change.
printf 'x: uniform(-5, 5)\nn: randint(0, 4)\n' > wide.yaml
hpo-sweep run wide.yaml --trials 3 -- echo 1
printf 'x: uniform(-6, 5)\nn: randint(-1, 9)\n' > wide.yaml
run hpo-sweep run wide.yaml --trials 6 -- echo 1
status_is 0 "a study goes on in wider ranges"
printf 'x: uniform(-6, 5)\nn: randint(0, 9)\n' > wide.yaml
run hpo-sweep run wide.yaml --trials 9 -- echo 1
status_is 3 "but not in narrower ones"
err_has "n was" "of which the first is named"
for pair in 'randn(0, 1)|randn(0, 2)' 'randn(0, 1)|uniform(-5, 5)'; do
    rm -f prior.db*
    printf 'x: %s\n' "${pair%|*}" > prior.yaml
    hpo-sweep ask prior.yaml > asked
    run hpo-sweep ask prior.yaml
    status_is 0 "a study has its prior, ${pair%|*}"
    printf 'x: %s\n' "${pair#*|}" > prior.yaml
    run hpo-sweep ask prior.yaml
    status_is 3 "another is refused, ${pair#*|}"
    err_has "the prior of x was [\"normal\",0,1] and is" "with the difference"
done

printf 'x: loguniform(0, 1)\n' > log.yaml
run hpo-sweep ask log.yaml
status_is 3 "log with zero is refused"
ok "and no storage is made" test ! -e log.db
: > empty.db
head -c 4096 /dev/zero | tr '\0' x > junk.db
run hpo-sweep show -S junk.db
status_is 3 "a file that is no database is refused"
run hpo-sweep show -S none.db
status_is 3 "a missing storage is an error"

echo 'test {x} -lt 5' > check
printf 'x: randint(0, 10)\n' > require.yaml
run hpo-sweep run require.yaml --sampler grid --require check -- echo '{x}'
status_is 0 "a check runs before each trial"
trials -S require.db > list
ok "and what it refuses is infeasible" \
    test "$(awk '{ print $2 }' list | uniq -c | tr -s ' \n' ' ')" = " 5 COMPLETE 5 FAIL "
echo 'test {x} -lt five' > check
run hpo-sweep run require.yaml --study broken --sampler grid --require check -- echo '{x}'
status_is 4 "a check that fails itself ends the sweep"

printf 'x: uniform(-1, 1)\nn: lograndint(1, 65)\nc: choice([a, 1, null])\n' > theirs.yaml
for version in 4.9 5.0; do
    cp "$data/sweep/optuna-$version.db" theirs.db
    chmod u+w theirs.db
    run hpo-sweep show -S theirs.db --study theirs
    ok "a study that Optuna $version made is read whole" test "$(tail -n +2 out | awk '{ print $2 }' | sort |
        uniq -c | tr -s ' \n' ' ')" = " 30 COMPLETE 1 FAIL 1 WAITING "
    run hpo-sweep best -S theirs.db --study theirs
    out_is "    23  COMPLETE       1.01988  x=0.5109261052049328  n=20  c=a" "with its best trial"
    run hpo-sweep ask theirs.yaml --direction maximize --json
    out_has '"trial": 31, "params": {"x": 0.25, ' "and continued with the trial it enqueued"
    rm theirs.db*
done

printf 'o: choice([a, "b 1"])\nx: uniform(0, 1) if o == a\n' > when.yaml
hpo-sweep ask when.yaml > asked
run hpo-sweep ask when.yaml
status_is 0 "a space with a condition is that of its study"
printf 'o: choice([a, "b 1"])\nx: uniform(0, 1) if o in [a, "b 1"]\n' > when.yaml
run hpo-sweep ask when.yaml
err_is "hpo-sweep: study 'when' has another search space: the condition of x was {\"o\":[\"a\"]} and is {\"o\":[\"a\",\"b 1\"]}; run --study NEW --warm-start when takes its trials over" \
    "another condition is another space"
printf 'o: choice([a, "b 1"])\nx: uniform(0, 1)\n' > when.yaml
run hpo-sweep ask when.yaml
status_is 3 "so is none"

# tuples among the choices, which Optuna warns of and keeps as lists
printf '{"h": {"type": "categorical", "choices": [[64, 64], [128], null]}}\n' > lists.json
run hpo-sweep run lists.json --sampler grid -- echo '{h}' 1
status_is 0 "a choice may be a list"
run hpo-sweep show -S lists.db
out_has " [64,64]" "and is shown as one"
run hpo-sweep enqueue lists.json 'h=[128]'
status_is 0 "and enqueued"
cat > foreign.jsonl << 'EOF'
{"op_code":0,"worker_id":"w","study_name":"s","directions":[1]}
{"op_code":4,"worker_id":"w","study_id":0,"state":4,"system_attrs":{"fixed_params":[1]}}
EOF
run hpo-sweep ask s.yaml -S journal:foreign.jsonl
err_is "hpo-sweep: trial 0: fixed_params is no object" "parameters enqueued in another form are refused"

hpo-sweep run s.yaml --study slow --trials 5 -- sleep 30 &
pid=$!
while ! [ -f slow.trials/000000/params.json ]; do sleep 0.1; done
run hpo-sweep run s.yaml --study slow --trials 5 -- sleep 30
status_is 75 "a second run ends at once"
err_is "hpo-sweep: s.db.lck: another run holds it" "and says why"
run hpo-sweep run s.yaml -q --study slow --trials 5 -- sleep 30
status_is 75 "with -q as well"
err_empty "without a word"
kill -TERM $pid
status=0
wait $pid || status=$?
status_is 143 "SIGTERM ends the run with 128 + 15"
run hpo-sweep show -S s.db --study slow
out_has "0  FAIL" "and its trial has failed"

hpo-sweep run s.yaml --study killed --trials 5 -- sleep 30 &
pid=$!
while ! [ -f killed.trials/000000/params.json ]; do sleep 0.1; done
kill -KILL $pid
wait $pid 2> /dev/null
hpo-sweep run s.yaml --study killed --trials 2 -- echo 1
trials -S s.db --study killed > list
ok "after SIGKILL the next run takes the dead trial for failed, and tries its point again" \
    test "$(awk '{ print $2 }' list | tr '\n' ' ')" = "FAIL COMPLETE COMPLETE "
# numbers below zero are no options
hpo-sweep ask -S below.db --study below s.yaml > out
run hpo-sweep report -S below.db 0 1 -0.5
status_is 0 "a negative value is reported"
run hpo-sweep report -S below.db 0 2 -inf
status_is 0 "so is an infinite one"
run hpo-sweep tell -S below.db 0 -1e-3
status_is 0 "and told"
ok "as it is" test "$(hpo-sweep best -S below.db | awk '{ print $3 }')" = -0.001
run hpo-sweep tell -S below.db 0 -x
status_is 2 "other words with a dash are options"
done_testing
