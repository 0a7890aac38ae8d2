/* The frame of a program that times driver calls. It answers one line at a time, `NAME COUNT`, with the nanoseconds
 * that one call of that measure took: the median of batches short enough that a disturbance spoils few of them.
 * As `program once NAME COUNT` it makes the calls and ends, for a profiler. */
#ifndef ALIQUOT_BENCH_MEASURE_H
#define ALIQUOT_BENCH_MEASURE_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCHES 15

struct measure {
    const char *name;
    void (*run)(unsigned long count);    /* makes count calls */
    void (*settle)(void);                /* between batches, outside the time; may be NULL */
    double (*time)(unsigned long count); /* nanoseconds of one call, for a measure that times itself; else NULL */
};

#define MUST(call)                                                                                    \
    do {                                                                                              \
        CUresult must_result = (call);                                                                \
        if (must_result != CUDA_SUCCESS) {                                                            \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, (int)must_result);  \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

static inline uint64_t now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline double median_of_batches(const struct measure *measure, unsigned long count)
{
    double each[BATCHES];
    unsigned long batch = count / BATCHES ? count / BATCHES : 1;
    measure->run(batch / 10 + 1); /* a warm-up */
    for (int i = 0; i < BATCHES; i++) {
        if (measure->settle)
            measure->settle();
        uint64_t begin = now_nanoseconds();
        measure->run(batch);
        each[i] = (double)(now_nanoseconds() - begin) / (double)batch;
    }
    if (measure->settle)
        measure->settle();
    qsort(each, BATCHES, sizeof *each, compare_doubles);
    return each[BATCHES / 2];
}

static inline const struct measure *find_measure(const struct measure *measures, const char *name)
{
    for (const struct measure *measure = measures; measure->name; measure++)
        if (strcmp(measure->name, name) == 0)
            return measure;
    fprintf(stderr, "no measure %s\n", name);
    exit(2);
}

static inline int answer_questions(const struct measure *measures)
{
    char name[64];
    unsigned long count;
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    while (scanf("%63s %lu", name, &count) == 2) {
        const struct measure *measure = find_measure(measures, name);
        printf("%.4f\n", measure->time ? measure->time(count) : median_of_batches(measure, count));
    }
    return 0;
}

/* First calls take longer ways: a profiler uses the difference between two counts. */
static inline int run_once(const struct measure *measures, const char *name, const char *count)
{
    const struct measure *measure = find_measure(measures, name);
    measure->run(strtoul(count, NULL, 10));
    return 0;
}

#endif
