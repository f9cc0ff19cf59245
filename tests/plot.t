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
run tp-shard plan --tp 4 --plot who.gif "$bard"
status_is 2 "another name is a usage error"
err_lines 2 "of two lines"
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
ok "up to where it did" test "$(lines usual.svg)" -eq 2 -a "$(lines far.svg)" -eq 2
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
done_testing
