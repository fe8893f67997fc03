/* The passes over the vectors of a window: (K, size) points and residuals, of float or double.
 *
 * `measure` reads the window once and writes nothing; its sums are added to, over blocks of
 * parameters and over ranks. Between it and `commit`, which reads the residuals once and writes a
 * slot, lies the decision whether the observation may enter at all. Folding needs no other pass: a
 * residual is merged into the next by `commit`, and measured again. Both go block by block, while
 * it is in the cache. Numbers that are stored are rounded to the dtype of the vectors, sums are
 * formed in double precision from differences in double precision.
 *
 * This file includes itself once for each dtype, as REAL; LOAD widens four numbers, ROUND rounds
 * four to it, and NAME tells the functions apart.
 */
#ifndef REAL
#include "lanes.h"

/* Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
 * streams, short enough for a few such blocks to stay in the cache. */
#define BLOCK 4096
/* Rows of memory are fetched AHEAD, since the processor loses sight of so many streams. */
#define AHEAD (2048 / sizeof(REAL))
#define LINE (64 / sizeof(REAL))

/* The vectors of a window, (rows, size) each, and an observation with room for its gradient. */
typedef struct {
    char kind; /* f for float, d for double */
    ptrdiff_t rows, size;
    void *points, *residuals, *x, *g, *out;
} Slots;

/* How an observation enters a slot, and with which weights the first slots are averaged. */
typedef struct {
    ptrdiff_t slot;
    double centre;
    ptrdiff_t count; /* of weights: none leave the gradient as it is */
    const double *weights;
    double shift;
    int merged; /* whether the average is stored, and the slot takes part in it */
} Entry;

#define REAL float
#define LOAD widen
#define ROUND narrow
#define NAME(function) function##_float
#include "passes.h"
#undef REAL
#undef LOAD
#undef ROUND
#undef NAME
#define REAL double
#define LOAD load
#define ROUND(v) (v)
#define NAME(function) function##_double
#include "passes.h"

static void measure_slots(const Slots *at, double centre, double limit, ptrdiff_t used,
                          ptrdiff_t skip, double *out) {
    (at->kind == 'f' ? measure_float : measure_double)(at, centre, limit, used, skip, out);
}

static void commit_slot(const Slots *at, const Entry *entry) {
    (at->kind == 'f' ? commit_float : commit_double)(at, entry);
}

#else
/* Widen an observation, and form its residual h = g - c x, rounded as it would be stored. Add to
 * sums[0] how many entries exceed a limit or are NaN, which fails every comparison (counted, since
 * a way out would take longer), and to sums[1] the sum of |g|. */
static void NAME(observe)(const REAL *x, const REAL *g, double c, double limit, ptrdiff_t n,
                          double *wide_x, double *h, double *sums) {
    const lanes centre = all(c), most = all(limit);
    lanes refused = all(0.0), lengths = all(0.0);
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const lanes u = LOAD(x + j), v = LOAD(g + j), w = ROUND(sub(v, mul(centre, u)));
        const lanes length = absolute(v);
        const bits fine = both(at_most(absolute(u), most), at_most(length, most));
        refused = add(refused, one_unless(both(fine, at_most(absolute(w), most))));
        lengths = add(lengths, length);
        store(wide_x + j, u);
        store(h + j, w);
    }
    sums[0] += total(refused);
    sums[1] += total(lengths);
    for (; j < n; ++j) {
        wide_x[j] = x[j];
        h[j] = (REAL)(g[j] - c * x[j]);
        const double length = fabs((double)g[j]);
        sums[0] += !(fabs(wide_x[j]) <= limit && length <= limit && fabs(h[j]) <= limit);
        sums[1] += length;
    }
}

/* Add ||dx||^2, <dx, dh>, ||dh||^2 to sums[i], `used` numbers apart, where dx = points[i] - x and
 * dh = residuals[i] - h. For a count that is known when this is compiled, all is kept in registers.
 */
INLINE void NAME(products)(const int count, const REAL *const *points, const REAL *const *residuals,
                           const double *x, const double *h, ptrdiff_t n, ptrdiff_t used,
                           double *const *sums) {
    lanes xx[4], xh[4], hh[4];
    for (int i = 0; i < count; ++i) xx[i] = xh[i] = hh[i] = all(0.0);
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4) {
        for (int i = 0; i < count && j % LINE == 0; ++i) {
            FETCH(points[i] + j + AHEAD);
            FETCH(residuals[i] + j + AHEAD);
        }
        for (int i = 0; i < count; ++i) {
            const lanes dx = sub(LOAD(points[i] + j), load(x + j));
            const lanes dh = sub(LOAD(residuals[i] + j), load(h + j));
            xx[i] = add_aside(xx[i], mul(dx, dx));
            xh[i] = add_aside(xh[i], mul(dx, dh));
            hh[i] = add(hh[i], mul(dh, dh));
        }
    }
    for (int i = 0; i < count; ++i) {
        double found[3] = {total(xx[i]), total(xh[i]), total(hh[i])};
        for (ptrdiff_t k = j; k < n; ++k) {
            const double dx = points[i][k] - x[k], dh = residuals[i][k] - h[k];
            found[0] += dx * dx, found[1] += dx * dh, found[2] += dh * dh;
        }
        for (int t = 0; t < 3; ++t) sums[i][t * used] += found[t];
    }
}

/* Compare a block of an observation with the slots in use, up to four at once: what they are
 * compared with is read once for all. */
static void NAME(compare)(const Slots *at, ptrdiff_t a, const double *x, const double *h,
                          ptrdiff_t n, ptrdiff_t used, ptrdiff_t skip, double *out) {
    const REAL *p[4], *r[4];
    double *sums[4];
    int held = 0;
    for (ptrdiff_t i = 0; i < used; ++i) {
        if (i != skip) {
            p[held] = (const REAL *)at->points + i * at->size + a;
            r[held] = (const REAL *)at->residuals + i * at->size + a;
            sums[held++] = out + i;
        }
        if (held < 4 && i + 1 < used) continue;
        if (held == 4) NAME(products)(4, p, r, x, h, n, used, sums);
        if (held == 3) NAME(products)(3, p, r, x, h, n, used, sums);
        if (held == 2) NAME(products)(2, p, r, x, h, n, used, sums);
        if (held == 1) NAME(products)(1, p, r, x, h, n, used, sums);
        held = 0;
    }
}

static void NAME(measure)(const Slots *at, double centre, double limit, ptrdiff_t used,
                          ptrdiff_t skip, double *out) {
    double x[BLOCK], h[BLOCK];
    for (ptrdiff_t a = 0; a < at->size; a += BLOCK) {
        const ptrdiff_t n = at->size - a < BLOCK ? at->size - a : BLOCK;
        const REAL *point = (const REAL *)at->x + a, *gradient = (const REAL *)at->g + a;
        NAME(observe)(point, gradient, centre, limit, n, x, h, out + 3 * used);
        NAME(compare)(at, a, x, h, n, used, skip, out);
    }
}

/* h = g - c x, rounded once. */
static void NAME(subtract_slope)(REAL *h, const REAL *x, const REAL *g, double c, ptrdiff_t n) {
    for (ptrdiff_t j = 0; j < n; ++j) h[j] = (REAL)(g[j] - c * x[j]);
}

/* out += sum_k w_k (row_k - own), of four rows, or of fewer one by one. */
static void NAME(add_rows)(REAL *out, int count, const REAL *w, const REAL *const *rows,
                           const REAL *own, ptrdiff_t n) {
    for (int k = 0; k < count && count < 4; ++k)
        for (ptrdiff_t j = 0; j < n; ++j) out[j] += w[k] * (rows[k][j] - own[j]);
    if (count < 4) return;
    const REAL *p = rows[0], *q = rows[1], *r = rows[2], *s = rows[3];
    const REAL t = w[0], u = w[1], v = w[2], z = w[3];
    for (ptrdiff_t a = 0; a < n; a += LINE) {
        const ptrdiff_t stop = a + (ptrdiff_t)LINE < n ? a + (ptrdiff_t)LINE : n;
        FETCH(p + a + AHEAD), FETCH(q + a + AHEAD), FETCH(r + a + AHEAD), FETCH(s + a + AHEAD);
        for (ptrdiff_t j = a; j < stop; ++j)
            out[j] += (t * (p[j] - own[j]) + u * (q[j] - own[j])) +
                      (v * (r[j] - own[j]) + z * (s[j] - own[j]));
    }
}

/* out += factor sum_i w_i (row_i - own), with the weights of an entry. */
static void NAME(add_average)(REAL *out, const REAL *rows, const REAL *own, ptrdiff_t size,
                              const Entry *entry, double factor, ptrdiff_t n) {
    const REAL *row[4];
    REAL w[4];
    int held = 0;
    for (ptrdiff_t i = 0; i < entry->count; ++i) {
        if (entry->weights[i] != 0.0 && (entry->merged || i != entry->slot)) {
            row[held] = rows + i * size;
            w[held++] = (REAL)(factor * entry->weights[i]);
        }
        if (held < 4 && i + 1 < entry->count) continue;
        NAME(add_rows)(out, held, w, row, own, n);
        held = 0;
    }
}

static void NAME(commit)(const Slots *at, const Entry *entry) {
    REAL h[BLOCK], *own = (REAL *)at->points + entry->slot * at->size;
    for (ptrdiff_t a = 0; a < at->size; a += BLOCK) {
        const ptrdiff_t n = at->size - a < BLOCK ? at->size - a : BLOCK;
        const REAL *x = (const REAL *)at->x + a, *g = (const REAL *)at->g + a;
        REAL *out = (REAL *)at->out + a, *residuals = (REAL *)at->residuals + a;
        NAME(subtract_slope)(h, x, g, entry->centre, n);
        memmove(out, g, n * sizeof(REAL));
        NAME(add_average)(out, residuals, h, at->size, entry, 1.0, n);
        if (entry->shift != 0.0)
            NAME(add_average)(out, (REAL *)at->points + a, x, at->size, entry, -entry->shift, n);
        if (entry->merged) NAME(subtract_slope)(h, x, out, entry->centre, n);
        memmove(own + a, x, n * sizeof(REAL));
        memcpy(residuals + entry->slot * at->size, h, n * sizeof(REAL));
    }
}
#endif
