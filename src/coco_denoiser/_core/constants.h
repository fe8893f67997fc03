/* The numbers that the whole library shares; problem.py reads them from the core. */
#ifndef COCO_CONSTANTS_H
#define COCO_CONSTANTS_H
/* Relative to the largest residual: points whose bound is below this count as one for the others,
 * and are then told apart in a problem of their own. */
#define COINCIDENT 1e-11
/* Relative to the residuals of a pair: how well their distance is known, which is a few roundings. */
#define ROUNDING 2e-15
/* Relative to its bound: a pair that exceeds it by less obeys it. */
#define WITHIN 1e-12
/* Relative to the largest residual: a bound that no pair exceeds. */
#define FREE 1e100
#endif
