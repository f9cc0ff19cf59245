/* fail-alloc - let one allocation of a program fail, and say what was left behind
 *
 * To be preloaded.  Allocations of the program and of the libraries that it reads and
 * writes with are counted in each process; those of threads and MPI, which answer to
 * nobody, are not.  ALLOC_LOG names a file: without ALLOC_AT it gets
 * the numbers of those that come from a place not seen before (three callers deep),
 * with it the allocation of that number fails, and the file gets "failed" and, from a
 * process that ends by itself, "left N": blocks of the program itself not freed.
 * ALLOC_IN names one of these libraries, of which all allocations of at least
 * ALLOC_LEAST bytes fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NPLACES = 1 << 16, NBLOCKS = 1 << 20, NRANGES = 64, DEPTH = 6 };

static struct range {
    uintptr_t from, to;
    bool own;  /* the program itself */
    bool none; /* ALLOC_IN */
} range[NRANGES];
static int nranges, log_fd = -1;
static long seen, fail_at;
static size_t least;
static uint64_t place[NPLACES];
static uintptr_t block[NBLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool inside;
static bool in_main; /* what runs before it, CUDA's runtime say, is not ours */
static int (*real_main)(int, char **, char **);

int __libc_start_main(int (*start_here)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*last)(void),
                      void *stack);
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static int note_object(struct dl_phdr_info *info, size_t size, void *first)
{
    static const char *const counted[] = { "/libc.so",    "libcjson", "libpcre2",
                                           "libsqlite3",  "libyaml",  "libz.so",
                                           "libutf8proc", "libdnnl",  "libzstd" };
    const char *in = getenv("ALLOC_IN");
    bool own = *(bool *)first, wanted = own;

    (void)size;
    *(bool *)first = false;
    for (size_t i = 0; i < sizeof(counted) / sizeof(*counted); i++)
        wanted = wanted || strstr(info->dlpi_name, counted[i]);
    for (int i = 0; wanted && i < info->dlpi_phnum && nranges < NRANGES; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];

        if (h->p_type == PT_LOAD && (h->p_flags & PF_X)) {
            range[nranges].from = info->dlpi_addr + h->p_vaddr;
            range[nranges].to = range[nranges].from + h->p_memsz;
            range[nranges].none = in && strstr(info->dlpi_name, in);
            range[nranges++].own = own;
        }
    }
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("ALLOC_LOG"), *at = getenv("ALLOC_AT");
    void *frame[2];
    bool first = true;

    inside = true;
    backtrace(frame, 2); /* loads what it needs now */
    fail_at = at ? atol(at) : 0;
    least = getenv("ALLOC_LEAST") ? (size_t)atol(getenv("ALLOC_LEAST")) : 0;
    dl_iterate_phdr(note_object, &first);
    if (name)
        log_fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    inside = false;
}

static int main_from_here(int argc, char **argv, char **env)
{
    in_main = true;
    return real_main(argc, argv, env);
}

int __libc_start_main(int (*start_here)(int, char **, char **), int argc, char **argv,
                      void (*init)(void), void (*fini)(void), void (*last)(void),
                      void *stack)
{
    int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void),
                void (*)(void), void (*)(void), void *) =
        dlsym(RTLD_NEXT, "__libc_start_main");

    real_main = start_here;
    return next(main_from_here, argc, argv, init, fini, last, stack);
}

static void say(const char *word, long n)
{
    char line[64];
    int len = snprintf(line, sizeof(line), "%s %ld\n", word, n);

    if (write(log_fd, line, (size_t)len) < 0)
        abort();
}

__attribute__((destructor)) static void end(void)
{
    long left = 0;

    inside = true;
    for (size_t i = 0; i < NBLOCKS; i++)
        left += block[i] > 1;
    if (log_fd >= 0 && fail_at)
        say("left", left);
}

static const struct range *whose(const void *caller)
{
    for (int i = 0; i < nranges; i++) {
        if ((uintptr_t)caller >= range[i].from && (uintptr_t)caller < range[i].to)
            return &range[i];
    }
    return NULL;
}

/* Is this the allocation that fails? */
static bool fails(const void *caller, size_t bytes)
{
    void *frame[DEPTH];
    uint64_t h = 14695981039346656037u;
    bool answer = false;
    const struct range *of = in_main && !inside ? whose(caller) : NULL;
    long n;

    if (of && of->none && bytes >= least) {
        errno = ENOMEM;
        return true;
    }
    if (log_fd < 0 || !of)
        return false;
    inside = true;
    pthread_mutex_lock(&lock);
    n = ++seen;
    if (fail_at) {
        answer = n == fail_at;
        if (answer)
            say("failed", n);
    } else {
        int depth = backtrace(frame, DEPTH);

        for (int i = 2; i < depth; i++)
            h = (h ^ (uintptr_t)frame[i]) * 1099511628211u;
        for (size_t at = h % NPLACES; place[at] != h; at = (at + 1) % NPLACES) {
            if (!place[at]) {
                place[at] = h;
                say("at", n);
                break;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    inside = false;
    if (answer)
        errno = ENOMEM;
    return answer;
}

/* A freed place of the table holds 1, so that what lies behind it is still found. */
static void remember(const void *p, const void *caller)
{
    const struct range *r = whose(caller);
    size_t at = ((uintptr_t)p >> 4) % NBLOCKS;

    if (!fail_at || !p || !r || !r->own)
        return;
    pthread_mutex_lock(&lock);
    while (block[at] > 1)
        at = (at + 1) % NBLOCKS;
    block[at] = (uintptr_t)p;
    pthread_mutex_unlock(&lock);
}

static void forget(const void *p)
{
    size_t at = ((uintptr_t)p >> 4) % NBLOCKS;

    if (!fail_at || !p)
        return;
    pthread_mutex_lock(&lock);
    for (; block[at]; at = (at + 1) % NBLOCKS) {
        if (block[at] == (uintptr_t)p) {
            block[at] = 1;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t n)
{
    void *p = fails(CALLER, n) ? NULL : __libc_malloc(n);

    remember(p, CALLER);
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = fails(CALLER, n * size) ? NULL : __libc_calloc(n, size);

    remember(p, CALLER);
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p;

    if (fails(CALLER, n))
        return NULL;
    forget(old);
    p = __libc_realloc(old, n);
    remember(p, CALLER);
    return p;
}

void *aligned_alloc(size_t alignment, size_t n)
{
    void *p = fails(CALLER, n) ? NULL : __libc_memalign(alignment, n);

    remember(p, CALLER);
    return p;
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    if (fails(CALLER, n))
        return ENOMEM;
    *out = __libc_memalign(alignment, n);
    remember(*out, CALLER);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    forget(p);
    __libc_free(p);
}
