/* csv - tables of actions as PyTorch's schedules have them
 *
 * A row for each rank, a cell for each action ("2F0"), blank cells for idle steps
 * (torch.distributed.pipelining, _load_csv and _dump_csv).  Actions that only exchange
 * (SEND_F, RECV_B, UNSHARD, ...) are read and left out: simulation derives them; an
 * overlapped pair is read as one action after the other.
 *
 * What was measured has its times behind the action, in seconds from the beginning of
 * the step: "2F0@0.012000000+0.003500000" began after 12 ms and took 3.5 ms.  PyTorch
 * reads these cells as "2F0". */
#ifndef LIB_PIPE_CSV_H
#define LIB_PIPE_CSV_H

#include "lib/pipe/action.h"

/* Write T. */
void csv_print(struct str *out, const struct action_table *t);
/* Read N bytes of TEXT; NAME is for messages.  The table is not checked yet but for its
 * words, and that all of its actions have times, or none: errors are ERR_INPUT
 * "NAME:LINE: cause". */
MUST_CHECK int csv_parse(struct action_table *t, const char *name, const char *text,
                         size_t n, struct err *err);

#endif
