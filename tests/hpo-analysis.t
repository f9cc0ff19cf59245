#!/bin/sh
# hpo-analysis.t - what a study tells: importances and pictures
. "$top_srcdir/tests/lib.sh"

cat > s.yaml << 'EOS'
x: uniform(0, 1)
opt: choice([sgd, adam])
momentum: uniform(0.5, 0.99) if opt == sgd
EOS
run hpo-sweep run s.yaml --seed 1 --trials 4 --sampler random -- echo 1
run hpo-sweep importance -S s.db
status_is 1 "equal values have no importances"
ok "nothing is printed" test ! -s out
ok "and the reason is told" grep -q 'two complete trials with different finite values' err
run hpo-sweep run s.yaml --trials 12 -- echo '{x}'
run hpo-sweep importance -S s.db
status_is 0 "few trials have importances"
ok "with a warning that says how many" grep -qx 'hpo-sweep: importances rest on 12 trials' err
ok "a conditional parameter says in how many trials it was in force" \
    grep -q 'momentum  (in [1-9] of 12 trials)$' out
ok "the others do not" test "$(grep -c in out)" = 1
hpo-sweep ask s.yaml > ask
run hpo-sweep tell -S s.db 12 inf
run hpo-sweep importance -S s.db
ok "infinite values are counted as well" grep -qx \
    'hpo-sweep: importances rest on 12 trials, without 1 whose value is not finite' err
run hpo-sweep run s.yaml --trials 40 -- echo '{x}'
run hpo-sweep importance -S s.db
ok "alone, too" grep -qx 'hpo-sweep: importances leave out 1 trial whose value is not finite' err
ok "what the value depends on matters most" test "$(awk 'NR == 1 { print $2 }' out)" = x
run hpo-sweep importance -S s.db --method fanova --json
status_is 0 "fanova parts the variance"
ok "which is all that parameter's" grep -q '"name": "x", "importance": \(1.0\|0.9\).*, "trials": 39}' out
run hpo-sweep run s.yaml --study two --direction minimize --direction maximize --trials 20 --sampler random \
    -- echo '{x} {x}'
run hpo-sweep importance -S s.db --study two --method fanova
status_is 2 "fanova serves one objective"
run hpo-sweep importance -S s.db --study two
status_is 0 "the best by Pareto rank serve several"
if hpo-sweep --version | grep -q '+cairo'; then
    for kind in slice contour rank timeline edf; do
        run hpo-sweep plot -S s.db --study s $kind -o $kind.svg
        status_is 0 "plot draws $kind"
        ok "as a picture" grep -q '</svg>' $kind.svg
    done
    run hpo-sweep plot -S s.db --study s contour --param x --param momentum -o two.svg
    status_is 0 "contour of two parameters"
    run hpo-sweep plot -S s.db --study s contour --param x -o one.svg
    status_is 2 "of one it is refused"
    err_has "hpo-sweep: a picture of pairs takes two parameters, not 1" "with the reason"
    run hpo-sweep plot -S s.db --study s rank --param x --param y -o y.svg
    status_is 2 "so is a parameter that is not there"
    err_has "hpo-sweep: 's' has no parameter 'y'" "by name"
    run hpo-sweep plot -S s.db --study s history --param x -o y.svg
    status_is 2 "history takes no parameters"
    ok "and nothing is written" test ! -e one.svg -a ! -e y.svg
    printf 'x: uniform(0, 1)\n' > none.yaml
    hpo-sweep ask none.yaml > ask
    for kind in slice timeline edf; do
        run hpo-sweep plot -S none.db $kind -o none.svg
        status_is 0 "$kind of a study without values is a picture"
    done
else
    skip "plot draws a study" "built without cairo"
fi
# pictures of thousands of trials, and where trials were that were pruned
if hpo-sweep --version | grep -q '+cairo'; then
    awk 'BEGIN {
        print "{\"op_code\":0,\"worker_id\":\"a\",\"study_name\":\"many\",\"directions\":[1]}"
        d = "{\\\"name\\\": \\\"FloatDistribution\\\", \\\"attributes\\\": {\\\"step\\\": null, \\\"low\\\": 0.0, \\\"high\\\": 1.0, \\\"log\\\": false}}"
        for (i = 0; i < 4000; i++) {
            x = i * 0.6180339887 % 1; y = i * 0.7548776662 % 1
            printf "{\"op_code\":4,\"worker_id\":\"a\",\"study_id\":0,\"datetime_start\":\"2026-11-20T16:50:20.234968\",\"datetime_complete\":\"2026-11-20T16:50:21.234968\",\"state\":1,\"value\":%g,\"params\":{\"x\":%g,\"y\":%g},\"distributions\":{\"x\":\"%s\",\"y\":\"%s\"},\"user_attrs\":{},\"system_attrs\":{},\"intermediate_values\":{}}\n", (x - 0.3) ^ 2 + y, x, y, d, d
        }
    }' > many.journal
    hpo-sweep import -S many.db many.journal
    for kind in history slice contour parallel; do
        hpo-sweep plot -o $kind.svg $kind many.db
        ok "a picture of 4,000 trials is small ($kind)" test "$(wc -c < $kind.svg)" -lt 700000
    done
    printf 'x: uniform(0, 1)\ny: uniform(0, 1)\n' > few.yaml
    for i in 0 1 2 3 4 5 6 7; do
        hpo-sweep ask few.yaml > ask
        hpo-sweep report -S few.db $i 1 $i
        if [ $i -lt 6 ]; then hpo-sweep tell -S few.db $i $i; fi
    done
    rings() { hpo-sweep plot -o few.svg contour few.db && grep -c "<path [^>]*rgb(100%" few.svg; }
    before=$(rings)
    hpo-sweep tell -S few.db --state pruned 6
    hpo-sweep tell -S few.db --state pruned 7
    ok "a contour shows pruned trials as rings, and says so" test "$(rings)" = $((before + 3))
else
    skip "pictures of thousands of trials are small" "built without cairo"
fi
done_testing
