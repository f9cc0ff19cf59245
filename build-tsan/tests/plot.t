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
done_testing
