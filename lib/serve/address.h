/* address - where a server listens: ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH */
#ifndef LIB_SERVE_ADDRESS_H
#define LIB_SERVE_ADDRESS_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct address {
    int fd;     /* bound; it listens after address_listen */
    char *path; /* of a Unix socket, which address_close removes; or NULL */
    bool local; /* nobody outside this machine can connect */
    struct str url;
    char *name; /* the address as it was given, without its port; NULL of a path */
};

/* Binds TEXT; port 0: a free one, which .url names.  A host name is an address of this
 * machine.  A Unix socket that nobody listens at is replaced; only this user may
 * connect to it.  ERR_USAGE: TEXT is no address; ERR_SYSTEM.  Call address_close also
 * after a failure. */
MUST_CHECK int address_bind(struct address *a, const char *text, struct err *err);
/* Takes the socket FD, which another program listens at for us (systemd.socket(5)).
 * ERR_USAGE: it is none that listens; then FD stays the caller's. */
MUST_CHECK int address_adopt(struct address *a, int fd, struct err *err);
/* Connections are accepted from now on. */
MUST_CHECK int address_listen(const struct address *a, struct err *err);
/* Does HOST, a request's header or NULL, name this machine: localhost, an address of
 * the loopback interface, or .name?  A page of a site whose name has been given this
 * machine's address (DNS rebinding) sends that name. */
bool address_is_named(const struct address *a, const char *host);
void address_close(struct address *a);

#endif
