/* fuzz-tcp - what comes on a rank's connections
 *
 * The first byte is even: what a stranger says, in pieces of as many bytes as the
 * second says, and what it answers as if this rank had connected to it.  Odd: what an
 * admitted rank sends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/comm/hello.h"
#include "lib/comm/tcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned char nonce[HELLO_NONCE] = "drawn";

static void hear(const uint8_t *data, size_t size, size_t each)
{
    const struct hello_job job = { "29501-0-00000000-", "a secret" };
    struct hello_guest g;
    enum hello_step step = HELLO_MORE;

    hello_expect(&g, nonce);
    while (size && (step == HELLO_MORE || step == HELLO_ASKED)) {
        void *to;
        size_t room = hello_room(&g, &to), n = size < each ? size : each;

        n = n < room ? n : room;
        memcpy(to, data, n);
        data += n;
        size -= n;
        step = hello_took(&g, &job, n);
        if (step == HELLO_PROVEN) /* without the secret */
            abort();
    }
}

static void read_answers(const uint8_t *data, size_t size)
{
    const struct hello_job job = { "29501-0-00000000-", "a secret" };
    struct hello_challenge c = { .foreign = 0 };
    struct hello_answer a = { .verdict = 0 };
    struct hello_proof p;
    struct hello h;

    hello_make(&h, &job, 1, 2, 3, nonce);
    memcpy(&c, data, size < sizeof(c) ? size : sizeof(c));
    (void)hello_prove(&p, &job, &h, &c);
    if (size > sizeof(c)) {
        size -= sizeof(c);
        memcpy(&a, data + sizeof(c), size < sizeof(a) ? size : sizeof(a));
    }
    if (hello_read(&a, &job, &h, &c) == HELLO_ADMITTED)
        abort();
}

/* Whatever rank 1 has sent, the operations of rank 0 end. */
static void receive(const uint8_t *data, size_t size)
{
    const int all[] = { 0, 1 };
    int pair[2], fd[2];
    struct comm *world, *group = NULL;
    struct err err;
    char word[5];
    float x[3] = { 1, 2, 3 };
    size_t sent = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
        return;
    while (sent < size) {
        ssize_t n = send(pair[1], data + sent, size - sent, MSG_NOSIGNAL);

        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    close(pair[1]);
    fd[0] = -1;
    fd[1] = pair[0];
    world = tcp_open(0, 2, fd);
    if (world->ops->group(world, all, 2, &group, &err) == 0 &&
        world->ops->receive(world, word, sizeof(word), 1, &err) == 0 &&
        comm_run(group, comm_all_reduce(x, 3), &err) == 0 &&
        comm_run(world, comm_broadcast(word, sizeof(word), 1), &err) == 0)
        (void)!world->ops->flush(world, &err);
    if (group)
        group->ops->close(group);
    world->ops->close(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (data[0] % 2) {
        receive(data + 1, size - 1);
        return 0;
    }
    hear(data + 2, size - 2, (size_t)data[1] + 1);
    read_answers(data + 2, size - 2);
    return 0;
}
