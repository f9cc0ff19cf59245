/* updates - the formulas of optimizers, for C and CUDA
 *
 * One weight at a time, in f32.  PyTorch computes scalars in double and rounds them to
 * f32 once; on a CPU its lerp, addcmul and add with a factor are fused multiply-adds.
 * Nothing else is fused: the callers are compiled without contraction, CUDA is told. */
#ifndef LIB_DEVICE_UPDATES_H
#define LIB_DEVICE_UPDATES_H

#include <math.h>

/* One formula has the options of the loop that it stands in. */
#if defined(__CUDACC__)
#define UPDATE static __device__ inline
#elif defined(__GNUC__)
#define UPDATE static inline __attribute__((always_inline))
#else
#define UPDATE static inline
#endif
#ifdef __CUDACC__
#define UPDATE_MUL(a, b) __fmul_rn(a, b)
#define UPDATE_ADD(a, b) __fadd_rn(a, b)
#else
#define UPDATE_MUL(a, b) ((a) * (b))
#define UPDATE_ADD(a, b) ((a) + (b))
#endif

/* FACTOR multiplies each gradient (clipping); KEEP is what decay leaves of a weight. */
struct adamw_numbers {
    float factor, keep, one_b1, b2, one_b2, root, eps, by;
};
struct sgd_numbers {
    float factor, decay, momentum, by;
};
struct lion_numbers {
    float factor, keep, b1, one_b1, b2, one_b2, by;
};
struct average_numbers {
    float factor, by;
};
struct bias_numbers {
    float factor, mean, by;
};
union update_numbers {
    float factor; /* the first of each */
    struct average_numbers average;
    struct bias_numbers bias;
    struct adamw_numbers adamw;
    struct sgd_numbers sgd;
    struct lion_numbers lion;
};

/* AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW: decay apart from the
 * gradient, eps outside of the root and after the correction of the bias. */
UPDATE void update_adamw(const struct adamw_numbers *a, float *p, float g, float *m,
                         float *v)
{
    float own = UPDATE_MUL(g, a->factor), w = UPDATE_MUL(*p, a->keep), den;

    *m = fmaf(own - *m, a->one_b1, *m);
    *v = fmaf(UPDATE_MUL(a->one_b2, own), own, UPDATE_MUL(*v, a->b2));
    den = UPDATE_ADD(sqrtf(*v) / a->root, a->eps);
    *p = UPDATE_ADD(w, UPDATE_MUL(a->by, *m) / den);
}

/* An exponential moving average, as torch.lerp: BY is 1 - its decay. */
UPDATE void update_average(const struct average_numbers *a, float *y, float x)
{
    *y = fmaf(x - *y, a->by, *y);
}

/* The bias of an expert in the choice alone (DeepSeek-AI 2024, "DeepSeek-V3", section
 * 2.1.2; Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing"): BY towards the MEAN
 * of the loads. */
UPDATE void update_bias(const struct bias_numbers *a, float *p, float load)
{
    *p =
        UPDATE_ADD(*p, UPDATE_MUL(a->by, (float)((load < a->mean) - (load > a->mean))));
}

/* torch.optim.SGD: decay is added to the gradient, BY is the negative rate; */
UPDATE void update_sgd(const struct sgd_numbers *a, float *p, float g)
{
    *p = fmaf(fmaf(*p, a->decay, UPDATE_MUL(g, a->factor)), a->by, *p);
}

/* with momentum (Sutskever et al. 2013), without dampening.  The sum B is 0 at first,
 * so the first update's is the gradient. */
UPDATE void update_momentum(const struct sgd_numbers *a, float *p, float g, float *b)
{
    g = fmaf(*p, a->decay, UPDATE_MUL(g, a->factor));
    *b = UPDATE_ADD(UPDATE_MUL(*b, a->momentum), g);
    *p = fmaf(*b, a->by, *p);
}

/* Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1):
 * the sign of a mixture of momentum M and gradient, decay apart from it.  A sign of 0
 * is 0. */
UPDATE void update_lion(const struct lion_numbers *a, float *p, float g, float *m)
{
    float own = UPDATE_MUL(g, a->factor), w = UPDATE_MUL(*p, a->keep);
    float c = fmaf(own, a->one_b1, UPDATE_MUL(*m, a->b1));

    *p = fmaf((float)((c > 0) - (c < 0)), a->by, w);
    *m = fmaf(own, a->one_b2, UPDATE_MUL(*m, a->b2));
}

#endif
