/* unit-outdir - what can be in the way of an output directory is told, and harms
 * nothing
 */
#define _GNU_SOURCE /* seteuid */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/ckpt/outdir.h"
#include "tests/tap.h"

enum { NOBODY = 65534 };
#define IDENTITY "merge a" /* 8 bytes with its line feed */
#define STAMP    "files 1" /* so has this */

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* RET and *err are a failure of KIND whose line is TEXT. */
static void fails(int ret, struct err *err, enum err_kind kind, const char *text)
{
    if (!tap_ok(ret < 0 && err->kind == kind && !strcmp(err->text, text), "%s", text))
        printf("#   got %d, kind %d: %s\n", ret, (int)err->kind,
               ret < 0 ? err->text : "");
    *err = (struct err){ 0 };
}

/* What a test needs of the system, without which no check means anything. */
static void must(int ret, const char *what)
{
    if (ret < 0) {
        printf("Bail out! %s: %s\n", what, strerror(errno));
        exit(99);
    }
}

static void put(const char *path, const char *text)
{
    struct err err;

    must(output_write(path, text, strlen(text), false, &err), path);
}

static void make(const char *path, mode_t mode)
{
    must(mkdir(path, 0700), path);
    must(chmod(path, mode), path);
}

static void gone(const char *path)
{
    struct err err = { 0 };

    if (fs_remove_tree(path, &err) < 0)
        tap_ok(false, "%s", err.text);
}

static bool holds(const char *path, const char *text)
{
    struct err err;
    char *got;
    bool same;

    if (fs_read_file(&got, NULL, path, 1 << 16, &err) < 0)
        return false;
    same = !strcmp(got, text);
    free(got);
    return same;
}

static int begin(struct outdir *o, const char *path, struct err *err)
{
    static const char *const files[] = { "model", "part/model" };

    return outdir_open(o, path, IDENTITY, STAMP, true, files, 2, err);
}

static void must_begin(struct outdir *o, const char *path)
{
    struct err err = { 0 };

    if (begin(o, path, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(99);
    }
}

/* From the next byte behind the first BYTES of a file on, no disk has room; -1: again.
 */
static void room(long bytes)
{
    struct rlimit limit;

    must(getrlimit(RLIMIT_FSIZE, &limit), "getrlimit");
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    must(setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
}

/* ---- where it is to be ---- */

static void try_places(void)
{
    struct err err = { 0 };
    struct outdir o;
    int ret;

    fails(begin(&o, "", &err), &err, ERR_USAGE, "the output has an empty name");
    fails(begin(&o, "nowhere/out", &err), &err, ERR_SYSTEM,
          "nowhere/out.partial: No such file or directory");
    put("out.partial", "a note");
    fails(begin(&o, "out", &err), &err, ERR_INPUT,
          "out.partial: is no directory; remove it");
    tap_ok(holds("out.partial", "a note"), "the file there is left as it was");
    gone("out.partial");
    put("out", "a note");
    fails(begin(&o, "out///", &err), &err, ERR_USAGE,
          "out: exists and is not a checkpoint");
    gone("out");
    make("out", 0700);
    make("out/part", 0700);
    put("out/model", "old");
    put("out/part/model", "old");
    put("out/part/notes", "mine");
    fails(begin(&o, "out", &err), &err, ERR_USAGE,
          "out: not replaced: it holds part/notes, which is not ours");
    gone("out/part/notes");
    ret = begin(&o, "out", &err);
    tap_ok(ret == 0, "what has no file but ours is replaced");
    if (ret == 0) {
        tap_ok(outdir_write(&o, "model", "new", 3, 0666, &err) == 0 &&
                   outdir_finish(&o, &err) == 0 && holds("out/model", "new") &&
                   !exists("out/part"),
               "as a whole");
        outdir_close(&o);
    }
    gone("out");
    must_begin(&o, "o");
    tap_ok(outdir_finish(&o, &err) == 0 && is_dir("o"), "a name may be one letter");
    outdir_close(&o);
    gone("o");
}

/* ---- the journal of an earlier run ---- */

/* Whether a run goes on after the lines WANT, having kept the file of the earlier one;
 * WANT NULL: it begins anew. */
static void goes_on(const char *want, const char *name)
{
    struct err err = { 0 };
    struct outdir o;

    if (tap_ok(begin(&o, "out", &err) == 0, "%s", name)) {
        if (!tap_ok(!strcmp(o.done, want ? want : "") &&
                        exists("out.partial/model") == (want != NULL),
                    want ? "is continued" : "is none: what was there is removed"))
            printf("# done: %s\n", o.done);
        outdir_close(&o);
    } else {
        printf("# %s\n", err.text);
    }
    gone("out.partial");
}

static void leave(const char *journal)
{
    make("out.partial", 0700);
    put("out.partial/model", "half");
    if (journal)
        put("out.partial/progress", journal);
}

static void try_journals(void)
{
    leave(IDENTITY "\n" STAMP "\nmodel 5\n");
    goes_on("model 5\n", "a journal of the same request");
    leave(IDENTITY "\n" STAMP "\nmodel 5\nmod");
    goes_on("model 5\n", "one whose last line is torn");
    leave(IDENTITY "\nfiles 2\nmodel 5\n");
    goes_on("model 5\n", "one of sources that changed");
    leave(IDENTITY "\n");
    goes_on("", "one that ends behind the request");
    leave(IDENTITY);
    goes_on(NULL, "one of half a line");
    leave(IDENTITY " b\n" STAMP "\nmodel 5\n");
    goes_on(NULL, "one of a request that begins as this does");
    leave(NULL);
    goes_on(NULL, "no journal");
    leave(NULL);
    make("out.partial/progress", 0700);
    goes_on(NULL, "a directory in the journal's place");
    leave(NULL);
    must(mkfifo("out.partial/progress", 0600), "mkfifo");
    goes_on(NULL, "a pipe there");
    leave(IDENTITY "\n" STAMP "\nmodel 5\n");
    must(link("out.partial/progress", "kept"), "link");
    goes_on(NULL, "a journal with another name");
    tap_ok(holds("kept", IDENTITY "\n" STAMP "\nmodel 5\n"),
           "which stays as it was under that");
    gone("kept");
    leave(IDENTITY "\n");
    must(truncate("out.partial/progress", (1L << 30) + 1), "truncate");
    goes_on(NULL, "a journal beyond a GiB");
}

/* ---- no room ---- */

static void try_room(void)
{
    struct err err = { 0 };
    struct outdir o;
    int ret;

    room(0);
    ret = begin(&o, "out", &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial: File too large");
    room(8);
    ret = begin(&o, "out", &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial: File too large");
    gone("out.partial");
    leave(IDENTITY "\n" STAMP "\nmodel 5\n");
    room(16);
    ret = begin(&o, "out", &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial/progress: File too large");
    gone("out.partial");
    must_begin(&o, "out");
    room(2);
    ret = outdir_write(&o, "model", "new", 3, 0666, &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial/model: File too large");
    room(2);
    ret = outdir_write(&o, "part/model", "new", 3, 0666, &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial/part/model: File too large");
    room(17);
    ret = outdir_note(&o, "model 3", &err);
    room(-1);
    fails(ret, &err, ERR_SYSTEM, "out.partial: File too large");
    tap_ok(!exists("out"), "nothing has the final name");
    put("out.partial/flat", "a file");
    fails(outdir_write(&o, "flat/model", "new", 3, 0666, &err), &err, ERR_SYSTEM,
          "out.partial/flat: Not a directory");
    outdir_close(&o);
    gone("out.partial");
}

/* ---- other ranks ---- */

static void try_join(void)
{
    struct err err = { 0 };
    struct outdir o, rank;
    int fd;

    fails(outdir_join(&rank, "out", &err), &err, ERR_SYSTEM,
          "out.partial: made by another rank: No such file or directory");
    must_begin(&o, "out");
    if (tap_ok(outdir_join(&rank, "out", &err) == 0, "a rank joins an output")) {
        fd = outdir_create(&rank, "model", &err);
        tap_ok(fd >= 0 && exists("out.partial/model"), "and writes there");
        if (fd >= 0)
            close(fd);
        outdir_close(&rank);
    }
    must(chmod("out.partial", 0770), "chmod");
    fails(outdir_join(&rank, "out", &err), &err, ERR_INPUT,
          "out.partial: is writable by others; remove it");
    outdir_close(&o);
    gone("out.partial");
}

/* ---- what others do meanwhile ---- */

static void try_meddling(void)
{
    char *old = str_dupf("out.old-%ld", (long)getpid());
    char *inside = str_dupf("%s/mine", old);
    struct err err = { 0 };
    struct outdir o;

    must_begin(&o, "out");
    gone("out.partial/progress");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM,
          "out.partial: No such file or directory");
    outdir_close(&o);
    must_begin(&o, "out");
    must(rename("out.partial", "away"), "rename");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM,
          "out.partial: was moved or replaced while it was written");
    outdir_close(&o);
    gone("away");
    must_begin(&o, "out");
    put("out", "a note");
    must(rename("out", "note"), "rename");
    must(symlink("nowhere", "out"), "symlink");
    tap_ok(outdir_finish(&o, &err) == 0 && is_dir("out") && !exists(old),
           "a link that came under the final name is replaced, not followed");
    outdir_close(&o);
    gone("note");
    must_begin(&o, "out");
    make(old, 0700);
    put(inside, "mine");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM,
          "out.partial: Directory not empty");
    outdir_close(&o);
    tap_ok(holds(inside, "mine"), "what has the old one's name is left as it was");
    gone(old);
    gone("out");
    gone("out.partial");
    free(inside);
    free(old);
}

/* ---- another file system in the way ---- */

static void try_mounts(void)
{
    struct err err = { 0 };
    struct outdir o;

    make("out", 0700);
    make("out.partial", 0700);
    if (mount("none", "out", "tmpfs", 0, "size=64k") < 0) {
        tap_skip("a mount point in the way is told", "cannot mount a file system");
        goto out;
    }
    put("out/model", "old");
    must_begin(&o, "out");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, "out: Device or resource busy");
    outdir_close(&o);
    tap_ok(holds("out/model", "old"), "the checkpoint mounted there stays");
    must(umount("out"), "umount");
    put("out/model", "old");
    must(mount("none", "out.partial", "tmpfs", 0, "size=64k,mode=700"), "mount");
    must_begin(&o, "out");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, "out: Device or resource busy");
    tap_ok(holds("out/model", "old"), "where it cannot move, the old one stays");
    outdir_close(&o);
    must(umount("out.partial"), "umount");
    make("out.partial/disk", 0700);
    must(mount("none", "out.partial/disk", "tmpfs", 0, "size=64k"), "mount");
    fails(begin(&o, "out", &err), &err, ERR_SYSTEM,
          "out.partial/disk: Device or resource busy");
    must(umount("out.partial/disk"), "umount");
out:
    gone("out");
    gone("out.partial");
}

/* ---- without the rights ---- */

static void as(uid_t user)
{
    must(seteuid(user), "seteuid");
}

/* Can this process lay down root's rights?  In some containers, and where they are only
 * imagined (fakeroot), it cannot. */
static bool can_be_nobody(void)
{
    bool can = geteuid() == 0 && seteuid(NOBODY) == 0;
    int fd = -1;

    if (can) {
        as(0);
        make("probe", 0700);
        as(NOBODY);
        fd = open("probe", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        as(0);
        gone("probe");
    }
    if (fd >= 0)
        close(fd);
    return can && fd < 0;
}

static void make_theirs(const char *path)
{
    make(path, 0755);
    must(chown(path, NOBODY, (gid_t)-1), "chown");
}

static void try_writing_closed(void)
{
    struct err err = { 0 };
    struct outdir o, sub;
    int fd;

    make_theirs("p");
    as(NOBODY);
    must_begin(&o, "p/out");
    make("p/out.partial/old", 0700);
    put("p/out.partial/old/a", "a");
    must(chmod("p/out.partial/old", 0500), "chmod");
    fails(outdir_create(&o, "old", &err), &err, ERR_SYSTEM,
          "p/out.partial/old/a: Permission denied");
    fails(outdir_write(&o, "old", "new", 3, 0666, &err), &err, ERR_SYSTEM,
          "p/out.partial/old/a: Permission denied");
    outdir_close(&o);
    fails(outdir_open(&o, "p/out", "another", STAMP, false, NULL, 0, &err), &err,
          ERR_SYSTEM, "p/out.partial/old/a: Permission denied");
    must(chmod("p/out.partial/old", 0700), "chmod");
    must_begin(&o, "p/out");
    must(chmod("p/out.partial", 0500), "chmod");
    fails(outdir_create(&o, "model", &err), &err, ERR_SYSTEM,
          "p/out.partial/model: Permission denied");
    fails(outdir_write(&o, "part/model", "new", 3, 0666, &err), &err, ERR_SYSTEM,
          "p/out.partial/part: Permission denied");
    outdir_close(&o);
    fails(begin(&o, "p/out", &err), &err, ERR_SYSTEM,
          "p/out.partial/progress: Permission denied");
    must(chmod("p/out.partial", 0000), "chmod");
    fails(begin(&o, "p/out", &err), &err, ERR_SYSTEM,
          "p/out.partial: Permission denied");
    must(chmod("p/out.partial", 0700), "chmod");

    must_begin(&o, "p/out");
    fd = outdir_create(&o, "model", &err);
    as(0);
    make("p/out.partial/part", 0755);
    must(fchown(fd, 0, (gid_t)-1), "fchown");
    as(NOBODY);
    fails(outdir_share(&o, fd, 0666, "p/out.partial/model", &err), &err, ERR_SYSTEM,
          "p/out.partial/model: Operation not permitted");
    fails(outdir_enter(&sub, &o, "part", &err), &err, ERR_SYSTEM,
          "p/out.partial/part: Operation not permitted");
    close(fd);
    outdir_close(&o);
    as(0);
    gone("p");
}

static void try_finishing_closed(void)
{
    char *kept = str_dupf("p/out.old-%ld/part/model", (long)getpid());
    char *line = str_dupf("%s: Permission denied", kept);
    struct err err = { 0 };
    struct outdir o;

    make_theirs("p");
    as(NOBODY);
    must_begin(&o, "p/out");
    as(0);
    must(chown("p/out.partial", 0, (gid_t)-1), "chown");
    must(chmod("p/out.partial", 0777), "chmod");
    as(NOBODY);
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM,
          "p/out.partial: Operation not permitted");
    outdir_close(&o);
    fails(begin(&o, "p/out", &err), &err, ERR_INPUT,
          "p/out.partial: belongs to another user; remove it");
    as(0);
    gone("p/out.partial");
    as(NOBODY);
    must_begin(&o, "p/out");
    must(chmod("p", 0500), "chmod");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, "p/out: Permission denied");
    outdir_close(&o);
    must(chmod("p", 0700), "chmod");
    make("p/out", 0700);
    put("p/out/model", "old");
    must_begin(&o, "p/out");
    must(chmod("p", 0500), "chmod");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, "p/out: Permission denied");
    outdir_close(&o);
    tap_ok(holds("p/out/model", "old"), "the old checkpoint stays");
    must(chmod("p", 0300), "chmod");
    must_begin(&o, "p/out");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, "p: Permission denied");
    outdir_close(&o);
    as(0);
    gone("p");
    make_theirs("p");
    as(NOBODY);
    make("p/out", 0700);
    as(0);
    make("p/out/part", 0755);
    put("p/out/part/model", "another's");
    as(NOBODY);
    must_begin(&o, "p/out");
    fails(outdir_finish(&o, &err), &err, ERR_SYSTEM, line);
    tap_ok(holds(kept, "another's") && is_dir("p/out") && !exists("p/out/part"),
           "the new one is in place, and what cannot be removed beside it");
    outdir_close(&o);
    as(0);
    gone("p");
    free(line);
    free(kept);
}

int main(void)
{
    char dir[] = "/tmp/unit-outdir-XXXXXX";
    struct err err = { 0 };

    umask(022);
    signal(SIGXFSZ, SIG_IGN);
    if (!mkdtemp(dir))
        return 1;
    must(chmod(dir, 0755), dir);
    must(chdir(dir), dir);
    try_places();
    try_journals();
    try_room();
    try_join();
    try_meddling();
    try_mounts();
    if (can_be_nobody()) {
        try_writing_closed();
        try_finishing_closed();
    } else {
        tap_skip("a directory without the rights is told", "needs root");
    }
    must(chdir("/"), "/");
    if (fs_remove_tree(dir, &err) < 0)
        tap_ok(false, "%s", err.text);
    return tap_done();
}
