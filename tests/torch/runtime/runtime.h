/* A stand-in for libcudart.so.13, for tests only: it serves the functions that PyTorch's libraries import, by the public
 * driver API, on a driver that the genuine runtime does not start on. Never installed, never beside a real driver. */
#ifndef ALIQUOT_TEST_RUNTIME_H
#define ALIQUOT_TEST_RUNTIME_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

struct driver {
#define DRIVER(name) __typeof__(&name) name;
#define DRIVER_AT(name, version) DRIVER(name)
#include "driver_calls.h"
};

/* The driver, opened at first use; functions that it lacks answer NOT_SUPPORTED. */
const struct driver *driver(void);

/* Remembers a failure for cudaGetLastError, and returns it. The codes of the two interfaces are the same numbers. */
cudaError_t runtime_end(CUresult result);

/* Makes the primary context of the thread's device current. */
CUresult runtime_enter(void);

/* The thread's device. */
int runtime_device(void);

#define EXPORT __attribute__((visibility("default")))

/* Enters, calls the driver, and remembers its answer. */
#define FORWARD(call)                                  \
    do {                                               \
        CUresult entered = runtime_enter();            \
        return runtime_end(entered ? entered : (call)); \
    } while (0)

#endif
