#!/bin/sh
# plot.t - pictures
. "$top_srcdir/tests/lib.sh"

if ! tp-shard --version | grep -q '+cairo'; then
    skip "pictures are drawn" "built without cairo"
    done_testing
fi
for kind in svg png pdf; do
    run tp-shard plan --tp 4 --plot "who.$kind" "$bard"
    status_is 0 "who holds what is drawn as $kind"
done
ok "a name in .svg gives SVG" grep -q '<svg' who.svg
ok "a name in .png gives PNG" sh -c 'head -c 4 who.png | grep -q PNG'
ok "a name in .pdf gives PDF" sh -c 'head -c 5 who.pdf | grep -q %PDF-'
run tp-shard plan --tp 2 --pp 2 --plot stages.html "$bard"
status_is 0 "a name in .html gives a page"
# how many pictures a page has; whether it needs nothing else
pictures() { grep -c '<svg' "$1"; }
whole() {
    [ "$(tail -n 1 "$1")" = '</html>' ] &&
        ! grep -iE '<script|<link|<img|<iframe|@import|@font-face' "$1" > /dev/null &&
        ! grep -oE '(href|src)="[^#][^"]*"' "$1" | grep -qv '="data:image/png;base64,' &&
        ! grep -oE 'https?://[^"]*' "$1" | grep -v '^http://www.w3.org/'
}
# parts of pictures have names of their own, and refer to nothing else
names_are_unique() { [ -z "$(grep -oE ' id="[^"]*"' "$1" | sort | uniq -d)" ]; }
names_are_there() {
    grep -oE 'href="#[^"]*"' "$1" | sed 's/.*#//' | sort -u > used
    grep -oE ' id="[^"]*"' "$1" | sed 's/.*="//' | sort -u > given
    test -s used && test -z "$(comm -23 used given)"
}
ok "which has the picture inside" test "$(pictures stages.html)" -eq 1
ok "and needs nothing else" whole stages.html
ok "and says what each part stores" grep -q '<td>rank-tp1-pp1.safetensors</td><td class="n">' stages.html
ok "and which command made it" grep -q "tp-shard plan --tp 2 --pp 2 --plot stages.html " stages.html
if command -v pdftotext > /dev/null; then
    run tp-shard plan --tp 2 --pp 2 --plot stages.pdf "$bard"
    pdftotext -layout stages.pdf
    ok "a plan shows the first layer of every stage, and how many are alike" \
        sh -c "grep -q 'model.layers.0.self_attn.q_proj.weight and 2 more alike' stages.txt &&
               grep -q 'model.layers.3.self_attn.q_proj.weight and 2 more alike' stages.txt"
    ok "its title names model, family and layout" grep -q 'bard (llama): tp 2, pp 2' stages.txt
else
    skip "a plan shows the first layer of every stage, and how many are alike" "no pdftotext"
    skip "its title names model, family and layout" "no pdftotext"
fi
run tp-shard plan --tp 4 --plot who.gif "$bard"
status_is 2 "another name is a usage error"
err_is "tp-shard: --plot: 'who.gif' does not end in .svg, .png, .pdf or .html
Try 'tp-shard plan --help' for more." "which names the formats"
run tp-shard plan --tp 4 --plot nowhere/who.svg "$bard"
status_is 4 "a picture that cannot be written is told"
err_lines 1 "in one line"

# logs of tp-run train
steps() {
    n=0
    for loss; do
        n=$((n + 1))
        printf '{"type":"step","step":%d,"loss":%s}\n' $n "$loss"
    done
}
lines() { grep -c 'stroke:rgb(0%,45%,70%)' "$1"; }
steps 3 2 1 > usual
run tp-run plot -o usual.svg usual
status_is 0 "losses are drawn"
steps 3 2 1 1e308 -1e308 > far
run tp-run plot -o far.svg far
status_is 0 "so are those of a run that diverged"
ok "up to where it did" test "$(lines usual.svg)" -eq 3 -a "$(lines far.svg)" -eq 3
steps 1 1e-320 1e305 > wide
run tp-run plot -o wide.svg wide
status_is 0 "a ratio beyond the numbers is no axis"
{
    steps 2 1
    printf 'x\000y\n'
} > torn
run tp-run plot -o torn.svg torn
status_is 3 "a line with a zero byte is bad input"
err_is "tp-run: torn:3:1:1: expected a value" "with its number"
ok "and no picture is made" test ! -e torn.svg

# a long run: a few early losses do not flatten the rest
awk 'BEGIN { for (i = 1; i <= 100; i++)
    printf "{\"type\":\"step\",\"step\":%d,\"loss\":%g,\"learning_rate\":1e-3,\"grad_norm\":1}\n",
        i, i < 4 ? 9 : 2 + 1 / i }' > long
awk 'NR == 1 { print "{\"type\":\"start\",\"step\":0,\"model\":\"a/m<1>\",\"family\":\"llama\",\"params\":2000000," \
    "\"mesh\":{\"tp\":2,\"dp\":1},\"backend\":\"cpu\",\"command\":\"tp-run train & m\"}" }
    { print } NR % 50 == 0 { printf "{\"type\":\"eval\",\"step\":%d,\"eval_loss\":2.%d}\n", NR, NR }' long > named
run tp-run plot --smooth 0.9 -o run.html named usual
status_is 0 "runs are drawn as a page"
ok "which needs nothing else" whole run.html
ok "whose names are unique" names_are_unique run.html
ok "and refer to what is there" names_are_there run.html
ok "with the best evaluation" grep -q '<td class="n">2.1000</td><td class="n">100</td>' run.html
run tp-run plot -o one.html -- named
ok "a name is escaped" grep -q '<h1>m&lt;1&gt;: llama' one.html
run tp-run plot -o one.svg -- named
ok "lines end at the frame" sh -c "! grep -E 'stroke:rgb.* d=\"M [^\"]*-[0-9]' one.svg"
ok "and the command that trained, escaped" grep -q '<pre>tp-run train &amp; m</pre>' run.html
if command -v pdftotext > /dev/null; then
    words() {
        run tp-run plot "$@" -o run.pdf named
        pdftotext -layout run.pdf
    }
    words
    ok "the title of a run names model, family, size and layout" \
        grep -qF 'm<1>: llama, 2 M parameters, tp 2, cpu' run.txt
    ok "losses beyond the scale are counted" grep -q '3 of the steps are above' run.txt
    ok "learning rate and norm have panels" \
        sh -c "grep -q 'learning rate' run.txt && grep -q 'norm of the gradient' run.txt && ! grep -q tokens/s run.txt"
    ok "the legend says what is training and what evaluation" grep -q 'training *evaluation' run.txt
    words --log-y
    ok "a logarithmic axis shows all" sh -c "! grep -q above run.txt && grep -qE '^ *10( |\$)' run.txt"
    words --steps 50:
    ok "of a window of steps only these are drawn" \
        sh -c "! grep -q above run.txt && grep -qE '^ *50 .* 100' run.txt"
    words --smooth 0.5
    ok "a smoothed loss and each step are told apart" grep -q 'training *each step *evaluation' run.txt
else
    for name in "title" "count" "panels" "legend" "logarithm" "window" "smooth"; do
        skip "the $name of a run" "no pdftotext"
    done
fi
run tp-run plot --smooth 1 -o run.svg named
status_is 2 "a weight of 1 is a usage error"
run tp-run plot --steps 9 -o run.svg named
err_is "tp-run: --steps: '9' is not of the form A:B
Try 'tp-run plot --help' for more." "steps that are no window are a usage error"
run tp-run plot --steps 200: -o run.svg named
status_is 3 "a window without a step is bad input"
err_is "tp-run: named: has none of the steps 200:" "which is told"

# plans and schedules
run mem-estimate plan --gpu a100-80g --gpus 2 --global-batch 2 --plot plan.html "$bard"
status_is 0 "a plan of layouts is drawn as a page"
ok "which needs nothing else" whole plan.html
ok "with other choices" grep -q '<h2>Other choices take longer</h2>' plan.html
ok "with the reasons of rejections" grep -q '<h2>Rejected</h2>' plan.html
ok "and a script that runs the first" grep -q '^<pre>#!/bin/sh' plan.html
run mem-estimate train --tp 2 --gpu a100-80g --plot train.html "$bard"
ok "an estimate is drawn as a page" whole train.html
ok "with its table" grep -q '<th class="n">optim</th>' train.html
for command in "plan --pp 2 --balance flops $bard" "plan --pp 2 --balance params --model-chunks 2 $bard" \
    "plan --pp 2 --balance memory $bard" "schedule --pp 4" "schedule --pp 4 --compare"; do
    # shellcheck disable=SC2086 # words
    run pp-partition $command --plot pp.html
    status_is 0 "pp-partition ${command%"$bard"} is drawn"
    ok "as a page" whole pp.html
done
ok "a comparison has the numbers" grep -q '<td>gpipe</td><td class="n">1</td><td class="n">' pp.html
printf 'lr: loguniform(1e-4, 1e-1)\nn: choice([1, 2])\n' > space.yaml
run hpo-sweep run space.yaml -q --trials 12 -S study.db -- sh -c 'echo {lr}'
run hpo-sweep plot -S study.db -o study.html
status_is 0 "a study is drawn as a page"
ok "with all pictures that there is something for" test "$(pictures study.html)" -eq 7
ok "and needs nothing else" whole study.html
ok "whose names are unique" names_are_unique study.html
ok "and refer to what is there" names_are_there study.html
ok "with the best trials and their parameters" grep -q '<th class="n">trial</th>.*<th>lr</th><th>n</th>' study.html
run hpo-sweep plot slice -S study.db -o slice.html
ok "or one of them" test "$(pictures slice.html)" -eq 1
run hpo-sweep plot -S study.db -o study.svg
status_is 2 "a picture is of one kind"
# a circle does not begin where the last text ended: its path has curves alone
run hpo-sweep plot history -S study.db -o history.svg
painted=$(grep 'fill:rgb' history.svg | grep -cE 'd="M [^"]* C ')
astray=$(grep 'fill:rgb' history.svg | grep -cE 'd="M [^"C]* L [^"]* C ')
ok "circles are circles" test "$painted" -gt 12 -a "$astray" -eq 0
done_testing
