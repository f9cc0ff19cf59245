#!/bin/sh
# house.t - layers and style, options and pages
. "$top_srcdir/tests/lib.sh"

ok "every file of lib includes its own layer or a lower one" \
    sh "$top_srcdir/build-aux/check-layers" "$top_srcdir"

# options LONG-NAMES of "$@" --help, one a line
help_options() {
    "$@" --help | sed -n 's/^ *\(-.,\)\{0,1\} *--\([a-z0-9-]*\).*/\2/p' | sort -u
}

# the options that PAGE documents, in .It lines
page_options() {
    sed -n 's/^\.It Fl \(. , \)\{0,1\}-\([a-z][a-z0-9-]*\).*/\2/p' "$1" | sort -u
}

for page in "$top_srcdir"/man/*.1; do
    program=$(basename "$page" .1)
    help_options "$program" > have
    for sub in $("$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'); do
        help_options "$program" "$sub" >> have
    done
    sort -u have > want
    page_options "$page" > got
    ok "$program(1) documents the options of $program --help" diff want got
done
if command -v mandoc > /dev/null; then
    for page in "$top_srcdir"/man/*.[1-8]; do
        ok "${page##*/} has no warnings" mandoc -T lint -W warning "$page"
    done
else
    skip "the pages have no warnings" "no mandoc"
fi

run tp-run --help
status_is 0 "--help succeeds"
ok "--help fits a screen" test "$(wc -l < out)" -le 40
run tp-run --version
out_has "features:" "--version lists the features"
run tp-run generate --no-such
status_is 2 "a wrong option is a usage error"
err_lines 2 "a usage error is two lines"
run tp-run generat
err_has "did you mean 'generate'" "a misspelt command is put right"
if [ -w /dev/full ]; then
    status=0
    tp-run --help > /dev/full 2> err || status=$?
    status_is 4 "output that cannot be written is an error of the machine"
fi
done_testing
