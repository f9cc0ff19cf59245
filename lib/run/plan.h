/* plan - one step of a replica, as rank 0 has decided it
 *
 * Rank 0 alone decides what a step contains (scheduler.h), because it alone knows which
 * texts arrive, stop and are cancelled.  It sends each replica's plan to the first rank
 * of each of its stages, and these send it to the other ranks of their tensor and
 * sequence groups.  Nobody waits for a receiver, so stages work on different steps.  A
 * plan has all that the engine reads: token ids, positions, sampling parameters; no
 * other rank needs the texts.  A step of single tokens is some hundred bytes. */
#ifndef LIB_RUN_PLAN_H
#define LIB_RUN_PLAN_H

#include "lib/run/pick.h"
#include "lib/run/runner.h"

enum plan_kind {
    PLAN_STEP,
    PLAN_END,   /* there are no more steps */
    PLAN_FAILED /* the same, because of .failure */
};

/* What a segment is to the scheduler. */
struct plan_part {
    uint64_t id, tag; /* of the text; see scheduler.h */
    bool last;        /* it includes the text's last token so far */
    bool decides;     /* it chooses the tokens that follow its picks' rows, unless they
                       * are known; */
    bool draws;       /* they are drawn by .pick.draw */
    int32_t nsaves;   /* snapshots of its states */
    struct segment_save save[SAVES_MOST];
    uint64_t first, npicks; /* of the plan's picks: of its output rows */
};

/* An output row, and how the token after it is chosen, or told. */
struct plan_pick {
    int32_t row;   /* of its segment */
    int32_t known; /* this is the token, whose log-probability is told; -1: it is
                    * chosen */
    struct pick pick;
    uint64_t edit, nedits;      /* with these of the plan's edits, */
    uint64_t allowed, nallowed; /* and these words of its sets of ids; 0: all */
};

/* What happens to sequences before the step, in this order. */
enum plan_change_kind { PLAN_FORGET, PLAN_TRUNCATE, PLAN_SHARE, PLAN_RESTORE };
struct plan_change {
    int32_t kind, sequence;
    int32_t n;    /* rows that it keeps, or that it begins with */
    int32_t from; /* of PLAN_SHARE: the sequence that has them; of PLAN_RESTORE: the
                   * record of its states */
};

/* `struct plan p = { 0 }` is empty.  Segment I belongs to part I; their .wanted,
 * .nwanted, .save and .draw are set by plan_segments. */
struct plan {
    enum plan_kind kind;
    struct plan_part *part;  /* [n] */
    struct segment *segment; /* [n]; arrays are borrowed from the caller of plan_add, or
                              * lie in .bytes */
    size_t n, cap_part, cap_segment;
    struct plan_change *change; /* [nchanges] */
    size_t nchanges, cap_changes;
    struct plan_pick *pick; /* [npicks]: of the parts, in order */
    size_t npicks, cap_picks;
    struct edit *edit; /* [nedits]: of the logits of the picks */
    size_t nedits, cap_edits;
    uint32_t *allowed; /* [nallowed]: ids that are possible */
    size_t nallowed, cap_allowed;
    int32_t *wanted;   /* [npicks]: as segments have them */
    struct draw *draw; /* the same */
    size_t cap_wanted, cap_draws;
    struct err failure;
    char *bytes; /* as it travels */
    size_t nbytes, cap_bytes;
};

void plan_clear(struct plan *p);
/* Makes *p an empty step, and keeps its memory. */
void plan_reset(struct plan *p);
/* Adds a part; its arrays stay valid until the plan has been sent and run.  Its picks
 * are those added since the last part: .first and .npicks are set here. */
void plan_add(struct plan *p, const struct plan_part *part, const struct segment *s);
void plan_change(struct plan *p, struct plan_change change);
/* Adds a pick of the next part, with EDITS. */
void plan_pick(struct plan *p, const struct plan_pick *pick,
               const struct pick_edits *edits);
/* The edits of PICK. */
struct pick_edits plan_edits(const struct plan *p, const struct plan_pick *pick);
/* The segments, for engine_step. */
const struct segment *plan_segments(struct plan *p);
/* Rank 0: sends P to the ranks of REPLICA; to those of its own tensor and sequence
 * groups, too, if that is its replica. */
MUST_CHECK int plan_send(struct plan *p, struct runner *r, int replica,
                         struct err *err);
/* The other ranks: waits for the next plan of their replica, and passes it on. */
MUST_CHECK int plan_receive(struct plan *p, struct runner *r, struct err *err);

#endif
