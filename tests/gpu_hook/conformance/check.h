/* The frame of a conformance program: a family of the driver API, one TEST for each claim. The program runs one test a
 * process (a driver's state is the process's), on whichever driver the loader finds. `list` prints the names.
 *
 * A test ends at the first expectation that does not hold, with the file, line and both values. */
#ifndef ALIQUOT_CONFORMANCE_CHECK_H
#define ALIQUOT_CONFORMANCE_CHECK_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define EXIT_SKIPPED 77

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};

static struct check_test *check_tests;

#define TEST(title)                                                                        \
    static void title(void);                                                               \
    static __attribute__((constructor)) void register_##title(void)                        \
    {                                                                                      \
        static struct check_test test = {#title, title, NULL};                             \
        test.next = check_tests;                                                           \
        check_tests = &test;                                                               \
    }                                                                                      \
    static void title(void)

#define EXPECT_CODE(call, want_code)                                                                     \
    do {                                                                                                 \
        CUresult found_code = (call), wanted_code = (want_code);                                         \
        if (found_code != wanted_code) {                                                                 \
            printf("%s:%d: %s answered %d, wanted %d (%s)\n", __FILE__, __LINE__, #call, found_code,      \
                   wanted_code, #want_code);                                                             \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define EXPECT_OK(call) EXPECT_CODE(call, CUDA_SUCCESS)

#define EXPECT_EQUAL(found, want)                                                                        \
    do {                                                                                                 \
        long long found_value = (long long)(found), want_value = (long long)(want);                      \
        if (found_value != want_value) {                                                                 \
            printf("%s:%d: %s is %lld, wanted %lld\n", __FILE__, __LINE__, #found, found_value, want_value); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define EXPECT(claim)                                                       \
    do {                                                                    \
        if (!(claim)) {                                                     \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);      \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* For what this device or driver truly lacks; says what. */
#define SKIP(...)            \
    do {                     \
        printf(__VA_ARGS__); \
        printf("\n");        \
        exit(EXIT_SKIPPED);  \
    } while (0)

/* Device 0 with its primary context current. */
static inline CUcontext check_start(void)
{
    CUdevice device;
    CUcontext context;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGet(&device, 0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, device));
    EXPECT_OK(cuCtxSetCurrent(context));
    return context;
}

/* A function of gpu_hook/builtins.ptx, which computes on the software GPU and on a real one. */
static inline CUfunction check_builtin(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        EXPECT_OK(cuModuleLoad(&module, getenv("ALIQUOT_BUILTINS")));
    EXPECT_OK(cuModuleGetFunction(&function, module, name));
    return function;
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct check_test *test = check_tests; test; test = test->next) {
        if (count < 2) {
            puts(test->name);
        } else if (strcmp(test->name, arguments[1]) == 0) {
            test->run();
            return 0;
        }
    }
    return count < 2 ? 0 : (fprintf(stderr, "no test %s\n", arguments[1]), 2);
}

#endif
