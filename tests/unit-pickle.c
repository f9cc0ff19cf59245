/* unit-pickle - files of torch.save: what is in them, and what is wrong with them */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/str.h"
#include "lib/ckpt/pickle.h"
#include "tests/tap.h"

/* The names of the tensors at P; those with strides have a star. */
static char *names_dup(const struct pickle *p)
{
    struct str s = { 0 };

    str_add(&s, "read:");
    for (size_t i = 0; i < p->n; i++)
        str_addf(&s, " %s%s", p->tensor[i].name, p->tensor[i].stride ? "*" : "");
    return str_steal(&s);
}

/* The file in TEXT gives RESULT: the names of its tensors, or the message of ERR_INPUT.
 */
static void gives(const struct str *text, const char *result, const char *what)
{
    struct err err = { 0 };
    struct pickle p;
    char *got;

    if (pickle_parse(&p, "f", (const unsigned char *)text->s, text->len, &err) == 0) {
        got = names_dup(&p);
        pickle_clear(&p);
    } else {
        got =
            str_dupf("%s%s", err.kind == ERR_INPUT ? "" : "of the machine: ", err.text);
    }
    tap_is(got, result, what);
    free(got);
}

/* ---- streams: the older form ---- */

/* A view of the storage KEY, which has 4 floats; all are in text opcodes. */
#define VIEW_OF(key, first, shape, stride)                                       \
    "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV" key \
    "\nVcpu\nI4\ntQI" first "\n(" shape "t(" stride                              \
    "tI0\nccollections\nOrderedDict\n(tRtR"
#define VIEW(first, shape, stride) VIEW_OF("0", first, shape, stride)
#define TENSOR                     VIEW("0", "I4\n", "I1\n")
#define ONE                        "(Va\n" TENSOR "d." /* {"a": a tensor} */
#define VERSION                    "M\351\003."
#define SYSTEM                     "(Vlittle_endian\nI01\nd."
#define KEYS                       "(V0\nl."
#define FLOATS(count)              count "\0\0\0\0\0\0\0aaaabbbbccccdddd"
#define BIG                        "I4611686018427387904\n" /* 2^62 */
#define P(text)                    text, sizeof(text) - 1

static const struct stream {
    const char *what, *object, *result;
    const char *version, *system, *keys; /* NULL: as usual */
    const char *data;                    /* NULL: the four floats of storage 0 */
    size_t n;
} streams[] = {
    { "a dictionary", ONE, .result = "read: a" },
    { "a tensor alone", TENSOR ".", .result = "read: tensor" },
    { "a list", "(" TENSOR TENSOR "l.", .result = "read: 0 1" },
    { "a key without a letter", "(V\n" TENSOR "d.", .result = "read: tensor" },
    { "keys that are numbers", "(I0\n" TENSOR "I-7\n" TENSOR "d.",
      .result = "read: 0 -7" },
    { "keys that are neither text nor number are passed over",
      "(N" TENSOR "(Va\nt" TENSOR "Vb\n" TENSOR "d.", .result = "read: b" },
    { "quotes and control characters in names", "(Va\"b\\c\td\n" TENSOR "d.",
      .result = "read: a\"b\\c\td" },
    { "a tensor that is called as a state is", "(Vmodel\n" TENSOR "d.",
      .result = "read: model" },
    { "a state without tensors is none", "(Vmodel\n(Va\nI1\ndVw\n" TENSOR "d.",
      .result = "read: w" },
    { "of two states of one name the first is looked at",
      "(Vmodel\n(Va\nI1\ndVmodel\n(Vb\n" TENSOR "dd.", .result = "read: model.b" },
    { "an empty tensor, wherever it begins",
      "(Va\n" VIEW("9", "I0\nI7\n", "I1\nI1\n") "d.", .result = "read: a" },
    { "a scalar", "(Va\n" VIEW("3", "", "") "d.", .result = "read: a" },
    { "a transposed tensor", "(Va\n" VIEW("0", "I2\nI2\n", "I1\nI2\n") "d.",
      .result = "read: a*" },
    { "axes of one, of any stride", "(Va\n" VIEW("0", "I1\nI4\n", "I77\nI1\n") "d.",
      .result = "read: a" },
    { "a number repeated along an axis", "(Va\n" VIEW("2", "I1000\n", "I0\n") "d.",
      .result = "read: a*" },

    { "a name twice", "(Va\n" TENSOR "Va\n" TENSOR "d.",
      .result = "f: duplicate tensor 'a'" },
    { "a name twice by way of two dictionaries",
      "(Va.b\n" TENSOR "Va\n(Vb\n" TENSOR "dd.",
      .result = "f: duplicate tensor 'a.b'" },
    { "a name twice, for one has none", "(V\n" TENSOR "Vtensor\n" TENSOR "d.",
      .result = "f: duplicate tensor 'tensor'" },
    { "a shape that overflows", "(Va\n" VIEW("0", BIG "I4\n", "I1\nI1\n") "d.",
      .result = "f: a: its shape overflows" },
    { "bytes that overflow", "(Va\n" VIEW("0", BIG, "I0\n") "d.",
      .result = "f: a: reaches beyond its storage" },
    { "a stride that overflows", "(Va\n" VIEW("0", "I5\n", BIG) "d.",
      .result = "f: a: reaches beyond its storage" },
    { "strides whose sum overflows", "(Va\n" VIEW("0", "I3\nI3\n", BIG BIG) "d.",
      .result = "f: a: reaches beyond its storage" },
    { "an end that overflows in bytes", "(Va\n" VIEW("0", "I2\n", BIG) "d.",
      .result = "f: a: reaches beyond its storage" },
    { "one element too many", "(Va\n" VIEW("1", "I4\n", "I1\n") "d.",
      .result = "f: a: reaches beyond its storage" },
    { "a storage that the list lacks", "(Va\n" VIEW_OF("1", "0", "I4\n", "I1\n") "d.",
      .result = "f: a: its storage '1' is not in the file", .keys = "(l.", .data = "" },
    { "a storage shorter than the pickle says", ONE,
      .result = "f: a: reaches beyond its storage",
      .data = P("\2\0\0\0\0\0\0\0aaaabbbb") },
    { "a storage cut short", ONE,
      .result = "f: bad pickle at byte 184: a storage is cut short",
      .data = P("\4\0\0\0\0\0\0\0aaaabbbb") },
    { "a storage without its number", ONE,
      .result = "f: bad pickle at byte 176: a storage is cut short",
      .data = P("\4\0\0") },
    { "a storage whose bytes overflow", ONE,
      .result = "f: bad pickle at byte 184: a storage is cut short",
      .data = P("\0\0\0\0\0\0\0\100aaaa") },
    { "a storage that nothing uses", ONE,
      .result = "f: bad pickle at byte 176: a storage that nothing uses",
      .keys = "(V7\nl." },
    { "a storage without a name", ONE,
      .result = "f: bad pickle at byte 176: a storage that nothing uses",
      .keys = "(I0\nl." },
    { "no list of storages", ONE,
      .result = "f: bad pickle at byte 176: no list of storages", .keys = "(V0\nt." },
    { "storages where their list should be", ONE,
      .result = "f: refused: its pickle has the opcode 0x04", .keys = "" },
    { "another version", ONE,
      .result = "f: bad pickle at byte 19: an unknown version of torch.save",
      .version = "M\352\003." },
    { "a version that is none", ONE,
      .result = "f: bad pickle at byte 22: an unknown version of torch.save",
      .version = "V1001\n." },
    { "something else than a version", ONE,
      .result = "f: refused: its pickle has the opcode 0x78", .version = "x" },
    { "a file of a big-endian machine", ONE,
      .result = "f: written with another byte order",
      .system = "(Vprotocol_version\nI1001\nVlittle_endian\nI00\nd." },
    { "a machine that does not tell", ONE, .result = "read: a",
      .system = "(Vtype_sizes\n(dd." },
    { "a machine that tells something else", ONE, .result = "read: a",
      .system = "(Vlittle_endian\nNd." },
    { "no machine", ONE, .result = "read: a", .system = "N." },
};

static void put(struct str *s, const char *text, const char *usual)
{
    str_add(s, text ? text : usual);
}

static void put_stream(struct str *s, const struct stream *t)
{
    str_addn(s, P("\200\002\212\012\154\374\234\106\371\040\152\250\120\031."));
    put(s, t->version, VERSION);
    put(s, t->system, SYSTEM);
    str_add(s, t->object);
    put(s, t->keys, KEYS);
    if (t->data)
        str_addn(s, t->data, t->n);
    else
        str_addn(s, P(FLOATS("\4")));
}

/* Lists in one another, N deep, each TIMES times in its parent, around LEAF. */
static void nested(const char *leaf, int n, int times, const char *result,
                   const char *what)
{
    struct str object = { 0 }, s = { 0 };
    struct stream t = { .result = result };

    str_add(&object, leaf);
    for (int i = 1; i <= n; i++) {
        str_addf(&object, "p%d\n0(", i); /* put it aside */
        for (int k = 0; k < times; k++)
            str_addf(&object, "g%d\n", i);
        str_add(&object, "l");
    }
    str_add(&object, ".");
    t.object = object.s;
    if (!strcmp(leaf, "N")) { /* no storage */
        t.keys = "(l.";
        t.data = "";
    }
    put_stream(&s, &t);
    gives(&s, result, what);
    str_clear(&s);
    str_clear(&object);
}

static void all_streams(void)
{
    struct str s = { 0 };

    for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
        s.len = 0;
        put_stream(&s, &streams[i]);
        gives(&s, streams[i].result, streams[i].what);
    }
    str_clear(&s);
    nested(TENSOR, 3, 2, "read: 0.0.0 0.0.1 0.1.0 0.1.1 1.0.0 1.0.1 1.1.0 1.1.1",
           "lists of lists");
    nested(TENSOR, 65, 1, "f: its containers are nested too deep or too often",
           "lists that are nested too deep");
    nested("N", 22, 2, "f: its containers are nested too deep or too often",
           "lists that are in one another too often");
}

/* ---- archives ---- */

#define OF_ONE P("\200\002" ONE)
#define STORAGE                              \
    {                                        \
        "m/data/0", P("aaaabbbbccccdddd"), 0 \
    }

static const struct member {
    const char *name, *text;
    size_t n;
    int method; /* 8: deflated */
} members[][4] = {
    { { "m/data.pkl", OF_ONE, 0 }, STORAGE },
    { { "README", P("x"), 0 },
      { "m/.data/serialization_id", P("7"), 0 },
      { "m/data.pkl", OF_ONE, 0 },
      STORAGE },
    { { "m/byteorder", P("little"), 0 }, { "m/data.pkl", OF_ONE, 0 }, STORAGE },
    { { "m/byteorder", P("big"), 0 }, { "m/data.pkl", OF_ONE, 0 }, STORAGE },
    { { "m/byteorder", P("middle"), 0 }, { "m/data.pkl", OF_ONE, 0 }, STORAGE },
    { { "m/data.pkl", OF_ONE, 8 }, STORAGE },
    { { "data.pkl", OF_ONE, 0 }, STORAGE },
    { { "README", P("x"), 0 } },
    { { "m/data.pkl", OF_ONE, 0 } },
    { { "m/data.pkl", OF_ONE, 0 }, { "other/data/0", P("aaaabbbbccccdddd"), 0 } },
    { { "m/data.pkl", OF_ONE, 0 }, { "m/data/0", P("aaaabbbbccccdddd"), 8 } },
    { { "m/data.pkl", OF_ONE, 0 }, { "m/data/0", P("aaaabbbbcccc"), 0 } },
    { { "m/data.pkl", P("\200\002cos\nsystem\n(Vls\ntR."), 0 }, STORAGE },
};
static const char *const of_members[][2] = {
    { "an archive", "read: a" },
    { "an archive with files of no interest", "read: a" },
    { "an archive that tells its byte order", "read: a" },
    { "an archive of a big-endian machine", "f: written with another byte order" },
    { "an archive of another machine", "f: written with another byte order" },
    { "a compressed pickle", "f: a zip archive without a stored data.pkl" },
    { "a pickle outside of a directory", "f: a zip archive without a stored data.pkl" },
    { "another archive", "f: a zip archive without a stored data.pkl" },
    { "a storage that the archive lacks", "f: no stored member data/0" },
    { "a storage in another directory", "f: no stored member data/0" },
    { "a compressed storage", "f: no stored member data/0" },
    { "a storage shorter than its pickle says", "f: a: reaches beyond its storage" },
    { "an archive whose pickle runs a command",
      "f: refused: its pickle names os.system" },
};

static void put_number(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(i < 8 ? v >> (8 * i) : 0));
}

/* What a local header and the directory's entry share (APPNOTE.TXT 4.3.7, 4.3.12). */
static void put_entry(struct str *s, const struct member *m)
{
    put_number(s, 20, 4); /* version, flags */
    put_number(s, (uint64_t)m->method, 2);
    put_number(s, 0, 8); /* time, checksum */
    put_number(s, m->n, 4);
    put_number(s, m->n, 4);
    put_number(s, strlen(m->name), 2);
    put_number(s, 0, 2);
}

static void put_archive(struct str *s, const struct member *m, size_t n)
{
    struct str directory = { 0 };

    for (size_t i = 0; i < n; i++) {
        str_add(&directory, "PK\1\2");
        put_number(&directory, 20, 2);
        put_entry(&directory, &m[i]);
        put_number(&directory, 0, 10); /* comment, disk, attributes */
        put_number(&directory, s->len, 4);
        str_add(&directory, m[i].name);
        str_add(s, "PK\3\4");
        put_entry(s, &m[i]);
        str_add(s, m[i].name);
        str_addn(s, m[i].text, m[i].n);
    }
    str_addn(&directory, P("PK\5\6\0\0\0\0"));
    put_number(&directory, n, 2);
    put_number(&directory, n, 2);
    put_number(&directory, directory.len - 12, 4);
    put_number(&directory, s->len, 4);
    put_number(&directory, 0, 2);
    str_addn(s, directory.s, directory.len);
    str_clear(&directory);
}

static void all_archives(void)
{
    struct str s = { 0 };

    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        size_t n = 0;

        while (n < 4 && members[i][n].name)
            n++;
        s.len = 0;
        put_archive(&s, members[i], n);
        gives(&s, of_members[i][1], of_members[i][0]);
    }
    str_clear(&s);
}

/* ---- what is no file ---- */

static void no_files(void)
{
    static const char *const paths[] = { "/", "/dev/null" };

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        int fd = open(paths[i], O_RDONLY);
        struct err err = { 0 };
        struct pickle p;

        tap_ok(pickle_read(&p, fd, "f", &err) < 0 && err.kind == ERR_INPUT &&
                   !strcmp(err.text, "f: empty, or not a regular file"),
               "%s is no file of torch.save", paths[i]);
        close(fd);
    }
}

int main(void)
{
    all_streams();
    all_archives();
    no_files();
    return tap_done();
}
