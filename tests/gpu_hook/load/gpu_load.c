/* A GPU load: steps of equal launches, each step timed by events of its own. Driver API and built-in kernels alone, so that
 * it runs on the software GPU and on a real one, bare and through the hook. Never measures by the wall.
 *
 *   gpu_load length_us=100 launches=50 pause_us=0 duty=1 steps=0 streams=1 priority=0 kind=kernel grid=1 device=0
 *            work=0 round_ns=0
 *
 * work=0 launches aliquot_spin, which on a real card ends by the clock even where others have the device meanwhile; work=1
 * launches aliquot_work, which does not: rounds of round_ns each, or of their length at the start, with no other load.
 *
 * Says "ready" when its context stands and it has warmed up, waits for a line on stdin, then works until `steps` are done
 * (0: without end) or until stdin has another line or ends. Each step is a line, "step <index> <begin us> <length us>" in
 * device time since the first; the last line is "done <steps>". Then it stays, idle, until stdin ends: its counters can be read. */
#include <cuda.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 16
#define THREADS 32
#define TRY_ROUNDS 200000.0
#define TRIES 5
#define STEPS_UNTIL_MARK 1000 /* an event's time is a float: a near mark keeps it to the microsecond */

#define DO(call)                                                                        \
    do {                                                                                \
        CUresult code = (call);                                                         \
        if (code != CUDA_SUCCESS)                                                       \
            give_up("%s:%d: %s answered %d", __FILE__, __LINE__, #call, (int)code);     \
    } while (0)

enum kind { KERNEL, EX, COOPERATIVE, GRAPH, KINDS };
static const char *const kinds[KINDS] = {"kernel", "ex", "cooperative", "graph"};

struct load {
    double round_ns, length_us, pause_us, duty; /* duty 0.25: pauses of three times the step's length, beside pause_us */
    long launches, steps, streams, priority, grid, device, work;
    enum kind kind;
    CUfunction function;
    CUdeviceptr result; /* of work */
    CUstream stream[STREAMS];
    CUevent begin, end, mark, joint[STREAMS];
    CUgraphExec graph;
};

__attribute__((format(printf, 1, 2))) static void give_up(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    exit(1);
}

static void read_kind(struct load *load, const char *text)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(text, kinds[i]) == 0) {
            load->kind = (enum kind)i;
            return;
        }
    give_up("kind=%s: expected kernel, ex, cooperative or graph", text);
}

static void read_argument(struct load *load, const char *argument)
{
    const struct {
        const char *name;
        double *real;
        long *whole;
    } known[] = {{"length_us=", &load->length_us, NULL}, {"pause_us=", &load->pause_us, NULL},
                 {"duty=", &load->duty, NULL},           {"launches=", NULL, &load->launches},
                 {"steps=", NULL, &load->steps},         {"streams=", NULL, &load->streams},
                 {"priority=", NULL, &load->priority},   {"grid=", NULL, &load->grid},
                 {"device=", NULL, &load->device},       {"work=", NULL, &load->work},
                 {"round_ns=", &load->round_ns, NULL}};
    if (strncmp(argument, "kind=", 5) == 0) {
        read_kind(load, argument + 5);
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].name);
        char *end;
        if (strncmp(argument, known[i].name, length) != 0)
            continue;
        double value = strtod(argument + length, &end);
        if (end == argument + length || *end)
            break;
        if (known[i].real)
            *known[i].real = value;
        else
            *known[i].whole = (long)value;
        return;
    }
    give_up("%s: expected name=number, with a name from the head of gpu_load.c", argument);
}

static void launch(const struct load *load, CUstream stream)
{
    uint64_t amount = (uint64_t)(load->length_us * 1000 / (load->work ? load->round_ns : 1));
    CUdeviceptr result = load->result;
    void *arguments[] = {&amount, &result}; /* a spin takes the first alone */
    CUlaunchConfig config = {.gridDimX = (unsigned)load->grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS,
                             .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
    if (load->kind == EX)
        DO(cuLaunchKernelEx(&config, load->function, arguments, NULL));
    else if (load->kind == COOPERATIVE)
        DO(cuLaunchCooperativeKernel(load->function, config.gridDimX, 1, 1, THREADS, 1, 1, 0, stream, arguments));
    else
        DO(cuLaunchKernel(load->function, config.gridDimX, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL));
}

/* The launches in turn over all streams, which part from the first and meet there again. */
static void put_launches(struct load *load)
{
    if (load->streams > 1)
        DO(cuEventRecord(load->joint[0], load->stream[0]));
    for (long s = 1; s < load->streams; s++)
        DO(cuStreamWaitEvent(load->stream[s], load->joint[0], 0));
    for (long i = 0; i < load->launches; i++)
        launch(load, load->stream[i % load->streams]);
    for (long s = 1; s < load->streams; s++) {
        DO(cuEventRecord(load->joint[s], load->stream[s]));
        DO(cuStreamWaitEvent(load->stream[0], load->joint[s], 0));
    }
}

/* How long a round of work takes: the least of some launches, each behind another, so that the host is ahead of them. */
static void measure_round(struct load *load)
{
    double least_ms = 1e9;
    load->round_ns = load->length_us * 1000 / TRY_ROUNDS;
    for (int i = 0; i < TRIES; i++) {
        float milliseconds;
        launch(load, load->stream[0]);
        DO(cuEventRecord(load->begin, load->stream[0]));
        launch(load, load->stream[0]);
        DO(cuEventRecord(load->end, load->stream[0]));
        DO(cuEventSynchronize(load->end));
        DO(cuEventElapsedTime(&milliseconds, load->begin, load->end));
        least_ms = milliseconds < least_ms ? milliseconds : least_ms;
    }
    load->round_ns = least_ms * 1e6 / TRY_ROUNDS;
}

static void prepare(struct load *load)
{
    CUcontext context;
    CUdevice device;
    CUmodule module;
    CUgraph graph;
    const char *builtins = getenv("ALIQUOT_BUILTINS");
    DO(cuInit(0));
    DO(cuDeviceGet(&device, (int)load->device));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    DO(cuModuleLoad(&module, builtins ? builtins : "gpu_hook/builtins.ptx"));
    DO(cuModuleGetFunction(&load->function, module, load->work ? "aliquot_work" : "aliquot_spin"));
    DO(cuMemAlloc(&load->result, sizeof(uint64_t)));
    for (long s = 0; s < load->streams; s++) {
        DO(cuStreamCreateWithPriority(&load->stream[s], CU_STREAM_NON_BLOCKING, (int)load->priority));
        DO(cuEventCreate(&load->joint[s], CU_EVENT_DISABLE_TIMING));
    }
    DO(cuEventCreate(&load->begin, CU_EVENT_DEFAULT));
    DO(cuEventCreate(&load->end, CU_EVENT_DEFAULT));
    DO(cuEventCreate(&load->mark, CU_EVENT_DEFAULT));
    if (load->work && load->round_ns <= 0)
        measure_round(load);
    if (load->kind == GRAPH) {
        DO(cuStreamBeginCapture(load->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
        put_launches(load);
        DO(cuStreamEndCapture(load->stream[0], &graph));
        DO(cuGraphInstantiate(&load->graph, graph, 0));
        DO(cuGraphUpload(load->graph, load->stream[0]));
    } else {
        launch(load, load->stream[0]);
    }
    DO(cuCtxSynchronize());
}

static int is_told(int wait_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[64];
    return poll(&input, 1, wait_ms) > 0 && read(STDIN_FILENO, line, sizeof line) >= 0;
}

static void rest(double microseconds)
{
    struct timespec pause = {(time_t)(microseconds / 1e6), (long)(((uint64_t)(microseconds * 1000)) % 1000000000u)};
    if (microseconds > 0)
        nanosleep(&pause, NULL);
}

/* The step's length in microseconds; `since_mark` is when it began. */
static double step(struct load *load, double *since_mark)
{
    float length, begin;
    DO(cuEventRecord(load->begin, load->stream[0]));
    if (load->kind == GRAPH)
        DO(cuGraphLaunch(load->graph, load->stream[0]));
    else
        put_launches(load);
    DO(cuEventRecord(load->end, load->stream[0]));
    DO(cuEventSynchronize(load->end));
    DO(cuEventElapsedTime(&length, load->begin, load->end));
    DO(cuEventElapsedTime(&begin, load->mark, load->begin));
    *since_mark = (double)begin * 1000;
    return (double)length * 1000;
}

static long work(struct load *load)
{
    double mark = 0, begin = 0;
    long done = 0;
    DO(cuEventRecord(load->mark, load->stream[0]));
    while ((load->steps == 0 || done < load->steps) && !is_told(0)) {
        double length = step(load, &begin);
        printf("step %ld %.1f %.1f\n", done, mark + begin, length);
        fflush(stdout);
        if (++done % STEPS_UNTIL_MARK == 0) {
            CUevent event = load->mark;
            load->mark = load->begin;
            load->begin = event;
            mark += begin;
        }
        rest(load->pause_us + (load->duty < 1 ? length * (1 - load->duty) / load->duty : 0));
    }
    return done;
}

int main(int count, char **arguments)
{
    static struct load load = {.length_us = 100, .launches = 50, .duty = 1, .streams = 1, .grid = 1};
    for (int i = 1; i < count; i++)
        read_argument(&load, arguments[i]);
    if (load.length_us <= 0 || load.launches < 1 || load.streams < 1 || load.streams > STREAMS || load.duty <= 0 ||
        load.duty > 1 || load.pause_us < 0 || load.steps < 0 || load.grid < 1)
        give_up("length_us and launches above 0, 1 to %d streams, duty above 0 and at most 1 were expected", STREAMS);
    prepare(&load);
    puts("ready");
    fflush(stdout);
    is_told(-1);
    printf("done %ld\n", work(&load));
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
