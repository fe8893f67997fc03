/* The sums of the passes over long vectors: included twice, with the dtype of the vectors as REAL,
 * LOAD to widen four of them, ROUND to round to them, and NAME to tell the functions apart.
 */

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

/* Fill sums[i] with ||dx||^2, <dx, dh>, ||dh||^2, where dx = points[i] - x, dh = residuals[i] - h.
 * For a count that is known when this is compiled, all is kept in registers. Rows of memory are
 * fetched AHEAD, since the processor loses sight of so many streams. */
#ifndef AHEAD
#define AHEAD (2048 / sizeof(REAL))
#define LINE (64 / sizeof(REAL))
#endif
INLINE void NAME(products_of)(const int count, const REAL *const *points,
                              const REAL *const *residuals, const double *x, const double *h,
                              ptrdiff_t n, double (*sums)[3]) {
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
        sums[i][0] = total(xx[i]), sums[i][1] = total(xh[i]), sums[i][2] = total(hh[i]);
        for (ptrdiff_t k = j; k < n; ++k) {
            const double dx = points[i][k] - x[k], dh = residuals[i][k] - h[k];
            sums[i][0] += dx * dx, sums[i][1] += dx * dh, sums[i][2] += dh * dh;
        }
    }
}

/* Likewise, for up to four vectors at once: what they are compared with is read once for all. */
static void NAME(products)(int count, const REAL *const *points, const REAL *const *residuals,
                           const double *x, const double *h, ptrdiff_t n, double (*sums)[3]) {
    if (count == 4) NAME(products_of)(4, points, residuals, x, h, n, sums);
    if (count == 3) NAME(products_of)(3, points, residuals, x, h, n, sums);
    if (count == 2) NAME(products_of)(2, points, residuals, x, h, n, sums);
    if (count == 1) NAME(products_of)(1, points, residuals, x, h, n, sums);
}

/* out += sum_k w_k (row_k - own), of four rows, which are fetched ahead as above. */
static void NAME(add_four)(REAL *out, const REAL *w, const REAL *const *rows, const REAL *own,
                           ptrdiff_t n) {
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
