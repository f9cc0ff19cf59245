/* foreign-names - prints the table of other programs' names
 *
 * foreign-names: a line each of NAME, PROGRAMS, COMMANDS, OPTION, the value of a FLAG,
 * other words for VALUES, and HINT between tabs, "-" for none.  foreign-names --page:
 * the rows as shardutils(7) has them. */
#include <stdio.h>
#include <string.h>

#include "cmd/foreign.h"

static const char *word(const char *text)
{
    return text ? text : "-";
}

static void print_row(const struct foreign *f)
{
    printf("%s\t%s\t%s\t%s\t%s\t", f->name, word(f->program), word(f->commands),
           word(f->option), word(f->fixed));
    for (const char *const *v = f->values; v && *v; v += 2)
        printf("%s%s=%s", v == f->values ? "" : ",", v[0], v[1]);
    printf("%s\t%s\n", f->values ? "" : "-", word(f->hint));
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* Do A and B say the same of two names? */
static bool same_answer(const struct foreign *a, const struct foreign *b)
{
    return same_text(a->program, b->program) && same_text(a->commands, b->commands) &&
           same_text(a->option, b->option) && same_text(a->fixed, b->fixed) &&
           a->values == b->values && same_text(a->hint, b->hint);
}

/* ".Fl -tp-size , -tensor-parallel-size", the names that share the answer of row AT. */
static void print_names(size_t at)
{
    int n = 0;

    for (size_t i = at; i < foreign_count; i++)
        if (same_answer(&foreign_table[at], &foreign_table[i]))
            printf("%s-%s",
                   n++ % 3 ? " , "
                   : n > 1 ? " ,\n.Fl "
                           : ".Fl ",
                   foreign_table[i].name);
    putchar('\n');
}

static void print_where(const struct foreign *f)
{
    if (f->commands)
        printf(".Pq %s %s\n", f->program, f->commands);
    else if (f->program)
        printf(".Pq %s\n", f->program);
}

static void print_option(const struct foreign *f)
{
    printf(".It Fl -%s", f->option);
    if (f->fixed)
        printf(" Ns = Ns Cm %s", f->fixed);
    putchar('\n');
}

/* "(float32 is f32, ...)" */
static void print_values(const struct foreign *f)
{
    for (const char *const *v = f->values; v && *v; v += 2)
        printf("%s%s is %s%s\n", v == f->values ? "(" : "", v[0], v[1],
               v[2] ? "," : ")");
}

/* The hint as a sentence of mdoc: each "--option" is a macro. */
static void print_hint(const char *text)
{
    const char *p, *end;

    while ((p = strstr(text, "--")) != NULL) {
        end = p + strcspn(p, " ,:;");
        if (p > text)
            printf("%.*s\n", (int)(p - text), text);
        printf(".Fl %.*s", (int)(end - p - 1), p + 1);
        text = end;
        if (*text && *text != ' ')
            printf(" %c", *text++);
        text += *text == ' ';
        putchar('\n');
    }
    if (*text)
        puts(text);
}

static void print_page(void)
{
    puts(".Bl -tag -width Ds -compact");
    for (int hints = 0; hints < 2; hints++) {
        if (hints)
            puts(".El\n.Pp\nThe others get a line that says what to do instead:\n"
                 ".Bl -tag -width Ds -compact");
        for (size_t i = 0; i < foreign_count; i++) {
            const struct foreign *f = &foreign_table[i];
            size_t first = 0;

            while (!same_answer(&foreign_table[first], f))
                first++;
            if (first < i || (hints ? f->option : f->hint))
                continue;
            if (hints) {
                puts(".It Xo");
                print_names(i);
                print_where(f);
                puts(".Xc");
                print_hint(f->hint);
            } else {
                print_option(f);
                print_names(i);
                print_where(f);
                print_values(f);
            }
        }
    }
    puts(".El");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--page")) {
        print_page();
        return 0;
    }
    for (size_t i = 0; i < foreign_count; i++)
        print_row(&foreign_table[i]);
    return 0;
}
