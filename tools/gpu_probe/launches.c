/* Measures the cost of timing events between short kernels, also between kernels that the device
 * may overlap; and the length of a step of short kernels, to compare a driver with a hook before
 * it. */
#include <stdlib.h>
#include <string.h>

#include "probe.h"

#define LAUNCHES 600 /* below what a queue holds */
#define ROUNDS 9
#define EVENTS 2
#define MOST_STEPS 1000
#define STEP_LAUNCHES 200

static struct {
    CUfunction fill;
    CUstream stream;
    CUevent events[EVENTS];
    CUdeviceptr memory;
} work;

static int launch(int overlaps)
{
    uint32_t value = 1;
    uint64_t words = 4096;
    void *arguments[] = {&work.memory, &value, &words};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
                             .blockDimZ = 1, .hStream = work.stream, .attrs = &attribute,
                             .numAttrs = overlaps ? 1 : 0};
    return (int)CU(cuLaunchKernelEx)(&config, work.fill, arguments, NULL);
}

/* Returns microseconds a launch, to the device's end; an event after each `every` launches, none
 * if it is 0. */
static double time_launches(int overlaps, int every, int *code)
{
    double since = probe_microseconds();
    for (int i = 0; i < LAUNCHES && *code == CUDA_SUCCESS; i++) {
        *code = launch(overlaps);
        if (every && i % every == 0)
            MUST(CU(cuEventRecord)(work.events[i / every % EVENTS], work.stream));
    }
    MUST(CU(cuStreamSynchronize)(work.stream));
    return (probe_microseconds() - since) / LAUNCHES;
}

static void prepare(void)
{
    probe_start();
    work.fill = probe_kernel("aliquot_fill");
    MUST(CU(cuMemAlloc)(&work.memory, 4096 * 4));
    MUST(CU(cuStreamCreate)(&work.stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < EVENTS; i++)
        MUST(CU(cuEventCreate)(&work.events[i], CU_EVENT_DEFAULT));
}

/* Steps of a small network's training: launches one after the other, and a wait at the end. */
void probe_steps(const char *asked)
{
    double times[MOST_STEPS];
    int steps = atoi(asked) > 0 && atoi(asked) <= MOST_STEPS ? atoi(asked) : MOST_STEPS;
    prepare();
    for (int step = -steps / 4; step < steps; step++) { /* those below 0 warm up */
        double since = probe_microseconds();
        for (int i = 0; i < STEP_LAUNCHES; i++)
            MUST((CUresult)launch(0));
        MUST(CU(cuStreamSynchronize)(work.stream));
        if (step >= 0)
            times[step] = probe_microseconds() - since;
    }
    double median = probe_median(times, steps);
    probe_say("steps", "\"launches\": %d, \"steps\": %d, \"step_us\": %.2f, \"p95_us\": %.2f", STEP_LAUNCHES, steps, median,
              times[steps * 95 / 100]);
}

void probe_events(const char *unused)
{
    static const int everies[] = {0, 1, 10};
    (void)unused;
    prepare();
    for (int overlaps = 0; overlaps < 2; overlaps++) {
        double times[3][ROUNDS];
        int code = launch(overlaps);
        for (int round = 0; round < ROUNDS; round++) /* interleaved: clocks rise and fall for all alike */
            for (size_t i = 0; i < 3; i++)
                times[i][round] = time_launches(overlaps, everies[i], &code);
        probe_say("events",
                  "\"overlapping\": %d, \"code\": %d, \"launch_us\": %.3f, \"event_each_us\": %.3f, "
                  "\"event_each_tenth_us\": %.3f",
                  overlaps, code, probe_median(times[0], ROUNDS), probe_median(times[1], ROUNDS),
                  probe_median(times[2], ROUNDS));
    }
}
