/* states - what sequences have of instructions with a state of fixed size
 *
 * A convolution's last rows, or a scan's state, is one record, which each step reads
 * and writes.  It cannot be cut back to fewer tokens as blocks of the KV cache can.  So
 * a step can save the state after some of its rows to other records, snapshots, and a
 * sequence goes on with a copy of one.  Records [0, sequences) are the sequences' own;
 * those after them are the caller's to use (replica.h). */
#ifndef LIB_RUN_STATES_H
#define LIB_RUN_STATES_H

#include "lib/device/device.h"
#include "lib/run/upload.h"

struct shape;

/* A step saves the state after the segment's row ROW. */
struct segment_save {
    int32_t row, record;
};
enum { SAVES_MOST = 8 }; /* of a segment */

struct states {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    size_t records;
    struct states_slot {
        int inst;
        uint64_t bytes; /* of a record */
        char *memory;   /* device */
    } * v;              /* [n]: in order of their instructions */
    int n;
    size_t use_at, save_at; /* offsets in this step's upload */
    struct states_view view;
};

/* The rows of a step that belong to one sequence. */
struct states_segment {
    size_t sequence, start; /* start: 0: a new sequence */
    size_t row, n;
    const struct segment_save *save; /* [nsaves]: by row */
    size_t nsaves;
};

/* states_plan finds the sizes, states_open allocates. */
MUST_CHECK int states_plan(struct states *s, const struct program *p,
                           const struct backend *ops, size_t records, struct err *err);
uint64_t states_bytes(const struct states *s);
MUST_CHECK int states_open(struct states *s, struct device *device, struct err *err);
void states_close(struct states *s);
/* Record TO becomes a copy of FROM. */
MUST_CHECK int states_copy(struct states *s, size_t to, size_t from, struct err *err);
/* Adds to U what a step of N segments reads, launched for ROOM, if that is more; the
 * largest; call states_ready after upload_send. */
void states_begin(struct states *s, const struct states_segment *v, size_t n,
                  size_t room, struct upload *u);
void states_begin_most(const struct states *s, size_t n, struct upload *u);
void states_ready(struct states *s, const struct upload *u);
/* Adds to *shape everything that launches depend on. */
void states_shape(const struct states *s, struct shape *shape);
/* Sets the state of CALL. */
void states_aim(const struct states *s, struct call *call);

#endif
