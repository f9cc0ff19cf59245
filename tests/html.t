#!/bin/sh
# html.t - the pages as HTML
. "${top_srcdir:?}/tests/lib.sh"
if ! command -v mandoc > /dev/null; then
    skip "the pages as HTML" "no mandoc"
    done_testing
    exit
fi

run sh "$top_srcdir/build-aux/make-html" "$top_srcdir" site
status_is 0 "make-html writes all pages"
err_empty "without a word"
cd site || exit 99
for page in "$top_srcdir"/man/*.[1-8]; do
    page=${page##*/}
    [ -s "$page.html" ] && grep -q "href=\"$page.html\"" index.html || echo "$page"
done > ../missing
ok "each is in the index" test ! -s ../missing
grep -ho '\(href\|src\)="[^"]*"' ./*.html | sed 's/.*="//; s/"$//' | sort -u | while IFS= read -r to; do
    case $to in
    \#*) ;;
    *) [ -e "${to%%#*}" ] || echo "$to" ;;
    esac
done > ../broken
ok "every link leads to a page" test ! -s ../broken
for page in ./*.html; do
    grep -o 'href="#[^"]*"' "$page" | sed 's/.*#//; s/"$//' | sort -u | while IFS= read -r to; do
        grep -qF "id=\"$to\"" "$page" || echo "$page#$to"
    done
done > ../lost
ok "and every reference within one to its section" test ! -s ../lost
ok "a page of another program is no link" sh -c '! grep -q "href=\"mpirun" tp-run.1.html && grep -q "mpirun(1)" tp-run.1.html'
ok "pages have links to one another" grep -q 'href="tp-run-train.1.html"' tp-run.1.html
done_testing
