/* The table behind cuGetProcAddress: one row per function and API version. */
#ifndef SOFTGPU_RESOLVER_H
#define SOFTGPU_RESOLVER_H

struct query {
    const char *name; /* without suffix */
    int version;      /* the least API version that gives this function */
    int per_thread;   /* the variant for per-thread default streams */
    void *function;
};

extern const struct query queries[]; /* sorted by name, then per_thread, then version */
extern const int query_count;

#endif
