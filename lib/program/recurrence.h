/* recurrence - the table of recurrences that OP_SCAN computes
 *
 * One row per kind: its word in the language, and how many values and weights follow
 * it.  S is a head's state [keys][values], in f32; k and q are its key and query, v its
 * value, dt the size of a step, A = -exp(log) the rate of decay.
 *
 *   ssd(v, k, q, dt, log[, skip])  S = e^(dt A) S + k (dt v)^T, y = S^T q + skip v; a
 *                    rate and a skip for each head (Dao and Gu 2024, arXiv:2405.21060)
 *   selective(v, k, q, dt, log[, skip])  the same, where each column of v is a head
 * with rates for each column of the key, and all read one key (Gu and Dao 2023,
 * arXiv:2312.00752) delta(v, k, q, dt, beta, log)  S' = e^(dt A) S, S = S' + k (beta (v
 * - S'^T k))^T, y = S^T q; dt has a column for each head (Yang et al. 2024,
 *                    arXiv:2412.06464), or for each column of its key (Kimi Linear
 * 2025, arXiv:2510.26692) lightning(v, k, q)  S = e^(-slope s) S + k v^T, y = S^T q, s
 * = 2^(-8 (h + 1) / H) for head h of H (Qin et al. 2024, arXiv:2401.04658) gated(u, r,
 * i, param)  for each column a = e^(-8 r softplus(param)), S = a S + sqrt(1 - a^2) i u,
 * at the first token S = i u; y = S (De et al. 2024, arXiv:2402.19427) wkv(k, v, decay,
 * first)  the softmax over the past of RWKV 4, for each column (Peng et al. 2023,
 * arXiv:2305.13048) */
#ifndef LIB_PROGRAM_RECURRENCE_H
#define LIB_PROGRAM_RECURRENCE_H

/* clang-format off */
/* ROW(ID, word, values, weights, weights that may be absent) */
#define SCANS(ROW)                  \
    ROW(SSD, ssd, 4, 2, 1)          \
    ROW(SELECTIVE, selective, 4, 2, 1) \
    ROW(DELTA, delta, 5, 1, 0)      \
    ROW(LIGHTNING, lightning, 3, 0, 0) \
    ROW(GATED, gated, 3, 1, 0)      \
    ROW(WKV, wkv, 2, 2, 0)
/* clang-format on */

enum scan_kind {
#define ROW(id, word, values, weights, absent) SCAN_##id,
    SCANS(ROW)
#undef ROW
        SCAN_KINDS
};

#endif
