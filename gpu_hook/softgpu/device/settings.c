/* The one reader of ALIQUOT_SOFTGPU_*. A value that cannot be read is an error, never a silent
 * default. */
#include "device/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "device/layout.h"

#define PREFIX "ALIQUOT_SOFTGPU_"

/* A number with an optional binary unit: 512m, 16GiB, 1073741824. */
static int parse_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "kmgt";
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !(value >= 0))
        return -1;
    double scale = 1;
    for (int i = 0; units[i]; i++)
        if (*end && tolower((unsigned char)*end) == units[i])
            for (int j = 0; j <= i; j++)
                scale *= 1024;
    if (scale > 1)
        end++;
    if (*end && strcasecmp(end, "ib") != 0 && strcasecmp(end, "b") != 0)
        return -1;
    if (value * scale > 1e15)
        return -1;
    *bytes = (uint64_t)(value * scale);
    return 0;
}

static int parse_count(const char *text, uint64_t *count)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || errno || *text == '-')
        return -1;
    *count = value;
    return 0;
}

struct number {
    const char *name, *meaning;
    uint64_t fallback, least, most;
    int in_bytes;
};

static int read_number(const struct number *number, uint64_t *value, char *problem, size_t problem_bytes)
{
    const char *text = getenv(number->name);
    *value = number->fallback;
    if (text == NULL || *text == '\0')
        return 0;
    if ((number->in_bytes ? parse_bytes(text, value) : parse_count(text, value)) == 0 &&
        *value >= number->least && *value <= number->most)
        return 0;
    snprintf(problem, problem_bytes, "%s=%s: expected %s from %llu to %llu", number->name, text, number->meaning,
             (unsigned long long)number->least, (unsigned long long)number->most);
    return -1;
}

/* How processes contend for an engine, and how long one takes to leave. */
static int read_sharing(struct settings *settings, char *problem, size_t problem_bytes)
{
    static const struct number slice = {PREFIX "SLICE_US", "microseconds", 2000, 10, 1000000, 0};
    static const struct number teardown = {PREFIX "TEARDOWN_MS", "milliseconds", 0, 0, 60000, 0};
    static const struct number switching = {PREFIX "SWITCH_US", "microseconds", 50, 0, 1000000, 0};
    if (read_number(&slice, &settings->slice_nanoseconds, problem, problem_bytes) ||
        read_number(&switching, &settings->switch_nanoseconds, problem, problem_bytes) ||
        read_number(&teardown, &settings->teardown_nanoseconds, problem, problem_bytes))
        return -1;
    settings->slice_nanoseconds *= 1000;
    settings->switch_nanoseconds *= 1000;
    settings->teardown_nanoseconds *= 1000000;
    return 0;
}

/* As much as on a card by default; a card of less than 8 GiB, which is made up, loses the same part
 * of its memory. */
static int read_context(struct settings *settings, char *problem, size_t problem_bytes)
{
    uint64_t share = settings->memory_bytes / 27, most = 300ull << 20;
    struct number context = {PREFIX "CONTEXT", "bytes (400MiB)", share < most ? share : most, 0, 1ull << 40, 1};
    context.fallback &= ~(uint64_t)(MACHINE_LARGE_UNIT - 1);
    return read_number(&context, &settings->context_bytes, problem, problem_bytes);
}

/* How many devices, in order, have links to each other. */
static int read_domain(struct settings *settings, char *problem, size_t problem_bytes)
{
    static const struct number domain = {PREFIX "DOMAIN", "a number of devices", 0, 0, MACHINE_DEVICES, 0};
    uint64_t value;
    if (read_number(&domain, &value, problem, problem_bytes))
        return -1;
    settings->domain_devices = (uint32_t)value;
    return 0;
}

/* NULL for a variable that is empty or not there. */
static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

int settings_read(struct settings *settings, char *problem, size_t problem_bytes)
{
    static const struct number devices = {PREFIX "DEVICES", "a number of devices", 1, 1, MACHINE_DEVICES, 0};
    static const struct number memory = {PREFIX "MEMORY", "bytes (16GiB, 512m)", 16ull << 30, 2ull << 20, 1ull << 40, 1};
    static const struct number sm_count = {PREFIX "SM_COUNT", "a number of SMs", 64, 1, 1024, 0};
    static const struct number link = {PREFIX "LINK_GBPS", "GB/s", 25, 1, 10000, 0};
    static const struct number launch = {PREFIX "LAUNCH_NS", "nanoseconds", 5000, 0, 3600000000000ull, 0};
    static const struct number chunk = {PREFIX "POOL_CHUNK", "bytes (2MiB, 32MiB)", MACHINE_LARGE_UNIT, 1, 1ull << 40, 1};
    static const struct number strict = {PREFIX "STRICT", "a number", 0, 0, 1, 0};
    static const struct number resource = {PREFIX "RESOURCE", "bytes (64KiB)", 0, 0, 1ull << 30, 1};
    static const struct number fault = {PREFIX "FAULT_US", "microseconds", 20, 0, 1000000, 0};
    static const struct number queue = {PREFIX "QUEUE", "a number of work items", 0, 0, 1u << 20, 0};
    static const struct number stale = {PREFIX "STALE", "a number", 1, 0, 2, 0};
    uint64_t value;

    if (read_number(&devices, &value, problem, problem_bytes))
        return -1;
    settings->device_count = (uint32_t)value;
    if (read_number(&memory, &value, problem, problem_bytes))
        return -1;
    settings->memory_bytes = value & ~(uint64_t)(MACHINE_LARGE_UNIT - 1);
    if (read_number(&sm_count, &value, problem, problem_bytes))
        return -1;
    settings->sm_count = (uint32_t)value;
    if (read_number(&link, &value, problem, problem_bytes))
        return -1;
    settings->link_bytes_per_second = value * 1000000000ull;
    if (read_number(&launch, &settings->launch_nanoseconds, problem, problem_bytes))
        return -1;
    if (read_sharing(settings, problem, problem_bytes) || read_domain(settings, problem, problem_bytes))
        return -1;

    if (read_number(&chunk, &value, problem, problem_bytes))
        return -1;
    settings->pool_chunk_bytes = (value + MACHINE_LARGE_UNIT - 1) & ~(uint64_t)(MACHINE_LARGE_UNIT - 1);

    if (read_context(settings, problem, problem_bytes) ||
        read_number(&resource, &settings->resource_bytes, problem, problem_bytes) ||
        read_number(&queue, &value, problem, problem_bytes))
        return -1;
    settings->queue_items = (uint32_t)value;
    if (read_number(&fault, &value, problem, problem_bytes))
        return -1;
    settings->fault_nanoseconds = value * 1000;
    if (read_number(&strict, &value, problem, problem_bytes))
        return -1;
    settings->is_strict = (uint32_t)value;
    if (read_number(&stale, &value, problem, problem_bytes))
        return -1;
    settings->stale = (uint32_t)value;

    const char *state = getenv(PREFIX "STATE");
    int length = state && *state
                     ? snprintf(settings->state_path, sizeof settings->state_path, "%s", state)
                     : snprintf(settings->state_path, sizeof settings->state_path, "/dev/shm/aliquot-softgpu-%u",
                                (unsigned)geteuid());
    if (length >= (int)sizeof settings->state_path) {
        snprintf(problem, problem_bytes, PREFIX "STATE has %d characters; at most %zu are allowed", length,
                 sizeof settings->state_path - 1);
        return -1;
    }
    settings->faults = getenv(PREFIX "FAULTS");
    settings->hold = getenv(PREFIX "HOLD");
    settings->log = getenv(PREFIX "LOG");
    settings->cgroup = text_of(PREFIX "CGROUP");
    settings->node = text_of(PREFIX "NODE");
    return 0;
}
