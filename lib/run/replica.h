/* replica - the texts of one replica, and what they hold of its caches
 *
 * Rank 0 counts the blocks, sequences and snapshots of states that each replica's ranks
 * have, gives them to texts, and adds to the replica's plan what its ranks do about it.
 * Texts that are over keep what they hold for others that begin alike, until it is
 * needed.  A text takes over or shares blocks up to rows for which there are states,
 * too, where a model has them: a snapshot, or the end of a text that is over.
 *
 * Snapshots are made of prompts, at ends of blocks: of the last one, of the last that
 * another text is known to share, and of each step's last one.  Of the latter nobody is
 * known to have a use, so they make room for the others first; then the one that was
 * not used for the longest time. */
#ifndef LIB_RUN_REPLICA_H
#define LIB_RUN_REPLICA_H

#include "lib/run/blockpool.h"
#include "lib/run/plan.h"
#include "lib/run/scheduler.h"

enum { WAITS = -1 }; /* in place of a replica */

/* The blocks of what an encoder has made of a source, which a text and its forks
 * hold together. */
struct source_blocks {
    size_t n, texts;
};

/* A text that is not over, on rank 0. */
struct text {
    struct scheduler_text in;
    uint64_t id;
    struct draw draw;
    const int32_t *ids; /* [n] */
    int32_t *own;       /* the same, if it grows */
    size_t n, cap;
    size_t nsource; /* rows of its source */
    size_t done;    /* tokens that are cached, or computed by a step in flight */
    size_t told;    /* rows of its prompt that are told, or will be by such a step */
    size_t before;  /* the same before step .step, in which it last was */
    uint64_t step;
    int32_t draft[DRAFTS_MOST]; /* [ndrafted]: what the step in flight computes beyond
                                 * .done */
    size_t ndrafted, accepted;  /* accepted: of these, that were gained */
    size_t eager;               /* tokens that are drafted next */
    int32_t *block;             /* [blocks] */
    size_t blocks, cap_blocks;
    struct source_blocks *source; /* or NULL */
    size_t sequence;
    struct scheduler_usage usage;
    int replica;                  /* or WAITS */
    bool shares;                  /* rows with texts that begin alike */
    bool away;                    /* a step in flight computes its next token */
    bool over;                    /* cancelled while it was away, or in its .gain */
    bool holds;                   /* until tokens are appended to it */
    struct grammar_cursor cursor; /* of .in.how's grammar */
    struct text *next;            /* in the queue */
};

/* What is the same of all replicas. */
struct replica_facts {
    size_t sequences, snapshots, drafts; /* as in the engine's limits */
    size_t window; /* of the smallest window of a layer; 0: none */
    bool states;   /* sequences have states of fixed size */
};

/* The texts of a replica and what they use of its cache. */
struct replica {
    const struct replica_facts *facts;
    struct text **running; /* [nrunning]: by id */
    size_t nrunning;
    struct text **kept; /* [nkept]: texts that are over and hold their sequences, for
                         * others that begin alike; the oldest first */
    size_t nkept;
    bool *taken;           /* [sequences] */
    struct blockpool pool; /* what each of its ranks' caches holds at most */
    uint32_t *idle;        /* [blocks]: how many of .kept hold each */
    size_t nidle;          /* blocks that only they hold */
    struct snapshot {
        const struct text *of; /* NULL: free */
        size_t n;              /* tokens */
        bool passing;          /* it is of a step's end, on the way */
        uint64_t made, used;   /* the steps of these */
    } * snapshot;              /* [facts.snapshots]: record SEQUENCES + I */
    uint64_t step;             /* that is being assembled */
    size_t source_blocks;
    struct plan plan;                      /* of this step */
    size_t tokens, sources, told, drafted; /* added to it */
};

/* FACTS must outlive R. */
void replica_init(struct replica *r, const struct replica_facts *facts, size_t blocks);
void replica_clear(struct replica *r);
void text_free(struct text *t);
size_t replica_blocks(size_t rows);
/* T drops its source: the blocks that nobody holds any more. */
size_t replica_drop_source(struct text *t);

/* Blocks that are free, or would be without the texts that are over. */
size_t replica_room(const struct replica *r);
/* Gives T blocks up to N, if they can be had. */
void replica_add_blocks(struct replica *r, struct text *t, size_t n);
/* A free sequence, of which there is one more than texts that run. */
size_t replica_find_sequence(struct replica *r);

/* How a text may begin in a replica: with the first N rows of another. */
struct start {
    int replica; /* or WAITS */
    struct text *from;
    size_t n;       /* 0: alone */
    int32_t record; /* of the state after them; -1: that of FROM's sequence */
    bool kept;      /* FROM is over */
    size_t soon;    /* the most that one that is not will have */
};
/* Considers to begin T with what FROM has.  The last token of T is always computed. */
void replica_consider(const struct replica *r, struct start *how, const struct text *t,
                      struct text *from, bool kept);
/* Blocks of HOW's start that no idle text alone holds: T would have them already. */
size_t replica_has(const struct replica *r, const struct start *how);
/* T begins as HOW says, with a sequence and the blocks of these rows. */
void replica_begin(struct replica *r, struct text *t, const struct start *how);
/* F begins with all rows of T, of which it shares the full blocks.  There is room. */
void replica_fork(struct replica *r, struct text *f, const struct text *t,
                  size_t more_blocks);
/* T, which has its blocks and its sequence, is one of the running texts. */
void replica_join(struct replica *r, struct text *t, size_t done);
/* Frees T's sequence, blocks and snapshots; it runs no more. */
void replica_leave(struct replica *r, struct text *t);
/* T is over; takes ownership of T, which keeps what it holds if others can use it. */
void replica_end(struct replica *r, struct text *t);
/* Gives up what all texts hold that are over. */
void replica_evict_all(struct replica *r);
/* The step that is being assembled computes N more tokens of T.  Fills SAVE with the
 * snapshots that it makes, by row, for texts that begin like it: at the last end of a
 * block, and at SHARED, if that is one.  Returns their number. */
int32_t replica_save(struct replica *r, const struct text *t, size_t n, size_t shared,
                     struct segment_save save[SAVES_MOST]);
/* The same of N drafted tokens of T: the state before each of them. */
int32_t replica_save_drafted(const struct replica *r, const struct text *t, size_t n,
                             struct segment_save save[SAVES_MOST]);
/* Drops the rows of drafted tokens of T that were not gained, and blocks for them. */
void replica_undo_drafted(struct replica *r, struct text *t);
/* May A and B share blocks, as far as they begin alike? */
bool text_may_share(const struct text *a, const struct text *b);
/* Tokens with which A and B begin, at most MOST. */
size_t text_common(const struct text *a, const struct text *b, size_t most);

#endif
