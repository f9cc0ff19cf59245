#!/bin/sh
# house.t - layers and style, options and pages
. "$top_srcdir/tests/lib.sh"

ok "every file of lib includes its own layer or a lower one" \
    sh "$top_srcdir/build-aux/check-layers" "$top_srcdir"

# bytes DIR... - of all files of these directories of tests/data
bytes() {
    (cd "$data" && find "$@" -type f -exec cat {} + | wc -c)
}
fixtures=$(bytes models stacks encoders heads packed quantized)
trained=$(bytes models/stories260K models/babyllama-tok105)
ok "the fixtures of all families, but for two trained models, have less than 15 MB" test $((fixtures - trained)) -lt 15000000 -a "$trained" -gt 0

top=$(git -C "$top_srcdir" ls-files 2> /dev/null | grep -v / | tr '\n' ' ')
if [ -n "$top" ]; then
    ok "the top level has what belongs there, and no more" \
        test "$top" = ".clang-format .gitignore COPYING HACKING Makefile.am NEWS README.md bootstrap configure.ac "
else
    skip "the top level has what belongs there, and no more" "no repository"
fi

# commands PROGRAM - the commands that its help lists
commands() {
    "$1" --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
}

# help_options WORD... - the options that the command's help lists: SHORT LONG, and = where a value
# follows
help_options() {
    "$@" --help | awk '/^  [+] / { for (i = 2; i <= NF; i++) print "      " $i; next } { print }' |
        sed -n 's/^  [ -]\([^ ]\{0,1\}\)[, ] *--\([a-z0-9-]*\)\(=\{0,1\}\).*/\1 \2\3/p'
}

# page_options PAGE - the same from its .It lines
page_options() {
    sed -n -e 's/^\.It Fl \(.\) , -/\1 -/' -e 's/^\.It Fl -/ -/' \
        -e 's/^\(.\{0,1\}\) -\([a-z][a-z0-9-]*\) .*Ar .*/\1 \2=/p' \
        -e 's/^\(.\{0,1\}\) -\([a-z][a-z0-9-]*\)$/\1 \2/p' "$1" | sort -u
}

# common_options PAGE - the names that a command's page lists as described in its program's page
common_options() {
    sed -n '/^\.Ss Common options/,/^\.Sh/s/^\.Fl //p' "$1" | tr ' ' '\n' | sed -n 's/^-//p' | sort
}

# fits PAGE WORD... - the command's help fits a screen and points to the page; options without a word may be one line there
fits() {
    fits_page=$1
    shift
    "$@" --help > help && [ "$(grep -vc "^  [+] " help)" -le 24 ] &&
        awk 'length($0) > 80 { print; bad = 1 } END { exit bad }' help &&
        [ "$(tail -n 1 help)" = "See $fits_page(1)." ]
}

for program in "$top_builddir"/bin/*; do
    program=${program##*/}
    page=$top_srcdir/man/$program.1
    ok "$program has a page" test -f "$page"
    ok "$program --help fits a screen" fits "$program" "$program"
    help_options "$program" > have
    page_options "$page" > documented
    commands "$program" | sort > want
    : > own
    : > shared
    for sub in $(cat want); do
        command_page=$top_srcdir/man/$program-$sub.1
        if [ ! -f "$command_page" ]; then
            ok "$program $sub --help fits a screen" fits "$program" "$program" "$sub"
            help_options "$program" "$sub" >> have
            continue
        fi
        # a page of its own has its options, and names those that the program's page describes
        echo "$sub" >> own
        ok "$program $sub --help fits a screen" fits "$program-$sub" "$program" "$sub"
        common_options "$command_page" > names
        cat names >> shared
        {
            page_options "$command_page"
            awk 'NR == FNR { name[$1]; next } { n = $NF; sub(/=$/, "", n) } n in name' names documented
        } | sort > got
        help_options "$program" "$sub" | sort -u > want_options
        ok "$program-$sub(1) has the options of $program $sub --help, each once" diff want_options got
    done
    if [ -s own ]; then
        sed 's/^.* //; s/=$//' documented | sort > got
        sort -u shared > want_options
        ok "each option of $program(1) is one of a command's" diff want_options got
        sed -n "s/^\\.It Xr $program-\\([a-z]*\\) 1/\\1/p" "$page" | sort > got
        ok "$program(1) lists the pages of its commands" diff want got
        continue
    fi
    sort -u have > want_options
    ok "$program(1) documents the options of $program --help" diff want_options documented
    sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.Cm \([a-z][a-z-]*\).*/\1/p' "$page" |
        sort -u > got
    ok "$program(1) has every command of $program --help in its synopsis" diff want got
done
for page in "$top_srcdir"/man/*.[1-8]; do
    ok "${page##*/} has exit statuses, examples and references" test \
        "$(grep -cE '^\.Sh (EXIT STATUS|EXAMPLES|SEE ALSO)$' "$page")" -eq 3
    ok "${page##*/} is installed" grep -q "%D%/${page##*/}" "$top_srcdir/man/local.mk"
done
if command -v mandoc > /dev/null; then
    for page in "$top_srcdir"/man/*.[1-8]; do
        ok "${page##*/} has no warnings" mandoc -T lint -W warning "$page"
    done
else
    skip "the pages have no warnings" "no mandoc"
fi

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

# a change whose old text is gone, or stands twice, tries nothing
while IFS='	' read -r file tests old new; do
    case $file in '' | '#'*) continue ;; esac
    OLD=$old awk 'BEGIN { RS = "\001"; old = ENVIRON["OLD"] } {
        at = index($0, old)
        exit !at || index(substr($0, at + 1), old) > 0
    }' "$top_srcdir/$file" || echo "$file: $old"
done < "$top_srcdir/tests/mutants/list" > stale
ok "every change of tests/mutants/list finds its text once" test ! -s stale

# make fuzz FUZZ_RUNS=, where clang has no engine
run "$top_builddir/tests/fuzz/fuzz-words" --seconds 60 --runs 40 --seed 3 "$top_srcdir"/tests/fuzz/corpus/words/*
out_has '# 40 changed inputs' "a fuzz target ends after so many inputs"

# hardened programs, where the build was to make them: not the ones with sanitizers, which lie at a
# fixed address
if command -v readelf > /dev/null && grep -q '^HARDEN_LDFLAGS = .*-z,now' "$top_builddir/Makefile" &&
    ! grep -q '^CFLAGS = .*-fsanitize=' "$top_builddir/Makefile"; then
    for program in "$top_builddir"/bin/*; do
        readelf -hdlW "$program" > elf 2>&1
        ok "${program##*/} is bound before it runs, and its tables are read-only then" \
            sh -c 'grep -q "BIND_NOW\|Flags:.* NOW" elf && grep -q GNU_RELRO elf'
        ok "${program##*/} may lie anywhere" grep -q 'Type: *DYN' elf
    done
else
    skip "programs are hardened" "not in this build"
fi
ok "what predicts carries no kernels of GPUs" sh -c '! grep -alq gpu_add_norm "$0/bin/mem-estimate" "$0/bin/pp-partition"' "$top_builddir"
done_testing
