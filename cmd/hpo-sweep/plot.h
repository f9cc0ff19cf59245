/* plot - what the pictures of a study share */
#ifndef CMD_HPO_SWEEP_PLOT_H
#define CMD_HPO_SWEEP_PLOT_H

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/plot/chart.h"
#include "lib/plot/html.h"

enum plot_kind {
    KIND_HISTORY,
    KIND_FRONT,
    KIND_REPORTS,
    KIND_PARALLEL,
    KIND_IMPORTANCE,
    KIND_SLICE,
    KIND_CONTOUR,
    KIND_RANK,
    KIND_TIMELINE,
    KIND_EDF,
    NKINDS,
    KIND_REPORT = NKINDS /* a page with all of them */
};

/* The picture of KIND.  The caller clears *f; S lasts as long. */
MUST_CHECK int plot_figure(struct figure *f, const struct study *s, int kind,
                           const struct opt_list *params, struct err *err);
/* Write the report of S's study to PATH: its trials, and all pictures that it has
 * something for.  With SECONDS it is written again at such intervals, as long as trials
 * run or wait; a browser that shows it loads it again. */
MUST_CHECK int report_write(struct session *s, const struct opt_list *params,
                            const char *path, const char *command, double seconds,
                            struct err *err);

/* Complete and feasible. */
bool plot_complete(const struct study_trial *t);
/* Ends of the values of objective K on AXIS, the pruned trials' among them if PRUNED:
 * logarithmic when they are positive and wide. */
void plot_fit_values(struct chart_axis *axis, const struct study *s, size_t k,
                     bool pruned);
/* The scale of the values of the parameter NAME, with room for what was tried. */
struct chart_axis plot_param_scale(const struct study *s, const char *name,
                                   const struct dist *d);
/* What its choices are called, shortened; release with fs_list_free. */
char **plot_choice_names_new(const struct dist *d);
/* The only chart of a picture of the usual size, whose axes are settled. */
struct chart plot_frame(struct canvas *canvas, const struct chart_axis *ax,
                        const struct chart_axis *ay);

/* Each parameter against the first objective; PARAMS names some of them, or none for
 * all.  The caller clears *f; S lasts as long. */
MUST_CHECK int panels_slice(struct figure *f, const struct study *s,
                            const struct opt_list *params, struct err *err);
/* Each two of PARAMS, or of the four that matter most, and the first objective there:
 * its estimate, or with RANKS that of each trial among the others. */
MUST_CHECK int panels_pairs(struct figure *f, const struct study *s,
                            const struct opt_list *params, bool ranks, struct err *err);

/* When each trial of the study ARG ran. */
void timeline_draw(struct canvas *canvas, const void *arg);
/* The part of the trials whose first value is no larger. */
void timeline_draw_edf(struct canvas *canvas, const void *arg);

#endif
