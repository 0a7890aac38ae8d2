#include "interpose/visible.h"

#include "base/log.h"
#include "base/settings.h"

#include <ctype.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define VARIABLE "CUDA_VISIBLE_DEVICES"
#define GRANT "ALIQUOT_VISIBLE_DEVICES" /* read once, by settings.c */
/* a place in the environment for ours, where the program has deleted its own */
#define SPARE "ALIQUOT_SPARE"
/* a link in the kernel's folder: the devices of a kernel that was moved since its start */
#define MOVED "devices"
/* likewise: those that it had before, but for the one of its start; none from an earlier agent */
#define EARLIER "devices-before"
#define LIST_BYTES 4096 /* 64 devices with UUIDs of 40 characters, and more */
#define UUID_BYTES 128

static struct {
    pthread_mutex_t mutex; /* held from begin to end: two threads may both come to begin CUDA */
    pthread_once_t once;
    /* NAME=VALUE as the driver reads it. Never freed: another thread's getenv may have answered
     * with it */
    char *given;
    char *replaced; /* the program's, in whose place in the environment ours stands; NULL: none */
    bool is_added;  /* there was no place for it */
    char **environment; /* that was made at load, perhaps replaced since */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* A driver that begins itself again finds its earlier choice. */
static __thread bool is_inside __attribute__((tls_model("initial-exec")));

struct entry {
    const char *text;
    size_t length;
};

/* The entry at the cursor without the spaces around it; moves the cursor to the next, or to
 * NULL. */
static struct entry take_entry(const char **cursor)
{
    const char *text = *cursor + strspn(*cursor, " \t");
    size_t length = strcspn(text, ",");
    *cursor = text[length] ? text + length + 1 : NULL;
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    return (struct entry){text, length};
}

static bool is_index(struct entry entry)
{
    size_t digits = strspn(entry.text, "0123456789");
    return entry.length > 0 && entry.length < 5 && digits >= entry.length;
}

/* Find a device of the grant by its place, or by a prefix of its UUID that fits no other. */
static bool find_granted(const char *granted, struct entry wanted, struct entry *found)
{
    long left = is_index(wanted) ? strtol(wanted.text, NULL, 10) : -1;
    bool is_known = false;
    for (const char *cursor = granted; cursor;) {
        struct entry one = take_entry(&cursor);
        bool fits = left >= 0
                        ? left-- == 0
                        : !is_index(wanted) && wanted.length > 4 && wanted.length <= one.length &&
                              strncasecmp(one.text, wanted.text, wanted.length) == 0;
        if (fits && is_known)
            return false;
        if (fits)
            *found = one;
        is_known = is_known || fits;
        if (fits && is_index(wanted))
            break;
    }
    return is_known && found->length > 0;
}

void visible_translate(const char *granted, const char *chosen, char *text, size_t size)
{
    size_t used = 0;
    for (const char *cursor = chosen ? chosen : granted; cursor;) {
        struct entry device;
        if (!find_granted(granted, take_entry(&cursor), &device) || used + device.length + 2 > size)
            break;
        if (used)
            text[used++] = ',';
        memcpy(text + used, device.text, device.length);
        used += device.length;
    }
    text[used] = '\0';
}

/* Read a link of the kernel's folder. False: there is none, as the kernel was not moved. */
static bool read_devices(const char *name, char *devices, size_t size)
{
    static char path[PATH_MAX]; /* guarded by the mutex; a thread's stack may be small */
    const char *folder = settings()->kernel_dir;
    int length = folder ? snprintf(path, sizeof path, "%s/%s", folder, name) : -1;
    ssize_t found = length > 0 && length < PATH_MAX ? readlink(path, devices, size - 1) : -1;
    if (found > 0)
        devices[found] = '\0';
    return found > 0;
}

/* One by one, so that no index counts them, and no beginning of a UUID that fits two is in doubt:
 * all mean the same device. */
static void translate_earlier(const char *chosen, char *text, size_t size)
{
    static char earlier[LIST_BYTES]; /* guarded by the mutex */
    char *next = read_devices(EARLIER, earlier, sizeof earlier) ? earlier : NULL;
    while (next && !text[0]) {
        const char *one = next;
        next = strchr(next, ',');
        if (next)
            *next++ = '\0';
        visible_translate(one, chosen, text, size);
    }
}

/* A kernel that was moved has one device. Its environment names the one of its start, and CUDA
 * tells its programs the present one, or told them one in between: all mean that device. */
static void follow_move(const char *chosen, char *text, size_t size)
{
    char moved[UUID_BYTES];
    if ((!text[0] && !chosen) || !read_devices(MOVED, moved, sizeof moved))
        return;
    if (!text[0])
        visible_translate(moved, chosen, text, size);
    if (!text[0])
        translate_earlier(chosen, text, size);
    if (text[0])
        strcpy(text, moved);
}

/* Replace one pointer of the environment. setenv() moves the array, and getenv() of another thread
 * then reads freed memory. A single pointer may change at any time: a reader gets the one text or
 * the other, and both stay. */
static void replace(char **slot, char *text)
{
    __atomic_store_n(slot, text, __ATOMIC_RELEASE);
}

static char **find_slot(const char *name)
{
    size_t length = strlen(name);
    for (char **slot = environ; slot && *slot; slot++)
        if (strncmp(*slot, name, length) == 0 && (*slot)[length] == '=')
            return slot;
    return NULL;
}

static char **find_text(const char *text)
{
    char **slot = environ;
    while (slot && *slot && *slot != text)
        slot++;
    return slot && *slot ? slot : NULL;
}

/* The grant's place cannot be used: a child that another thread starts in the meantime reads its
 * grant there. The array is a new one, as the program may be reading the old one; setenv() would
 * free that. */
__attribute__((constructor)) static void reserve_place(void)
{
    static char spare[] = SPARE "=";
    size_t count = 0;
    if (!find_slot(GRANT) || find_slot(SPARE))
        return;
    while (environ[count])
        count++;
    state.environment = calloc(count + 2, sizeof *state.environment);
    if (!state.environment)
        return;
    memcpy(state.environment, environ, count * sizeof *environ);
    state.environment[count] = spare;
    __atomic_store_n(&environ, state.environment, __ATOMIC_RELEASE);
}

/* Without memory for it no device is given: the program's own text would count the node's
 * devices. */
static void prepare_given(const char *text)
{
    static char nothing[] = VARIABLE "=";
    if (state.given && strcmp(state.given + strlen(VARIABLE "="), text) == 0)
        return;
    char *given = malloc(strlen(VARIABLE "=") + strlen(text) + 1);
    if (given) {
        strcpy(given, VARIABLE "=");
        strcat(given, text);
    } else {
        LOG("event=no_memory_for_visible_devices given=\"\"");
    }
    state.given = given ? given : nothing;
}

static void give(const char *text)
{
    char **slot = find_slot(VARIABLE);
    slot = slot ? slot : find_slot(SPARE);
    if (slot) {
        prepare_given(text);
        state.replaced = *slot;
        replace(slot, state.given);
    } else {
        state.is_added = setenv(VARIABLE, text, 1) == 0;
    }
}

/* Another thread may be in cuInit at the fork: the child has that thread's lock, and its choice in
 * the environment. A text that was added names what the kernel has, as no text does. */
static void leave_in_child(void)
{
    if (is_inside) /* the driver forks in its cuInit */
        return;
    char **slot = state.replaced ? find_text(state.given) : NULL;
    if (slot)
        replace(slot, state.replaced);
    state.replaced = NULL;
    state.is_added = false;
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, leave_in_child);
}

bool visible_begin(void)
{
    const char *granted = settings()->visible_devices;
    if (!settings()->is_on || !granted || is_inside)
        return false;
    pthread_once(&state.once, watch_forks); /* before the lock: a fork may come at any time */
    is_inside = true;
    pthread_mutex_lock(&state.mutex);
    char text[LIST_BYTES];
    const char *chosen = getenv(VARIABLE);
    visible_translate(granted, chosen, text, sizeof text);
    follow_move(chosen, text, sizeof text);
    if (chosen && strcmp(chosen, text) == 0)
        return true;
    LOG("event=visible_devices chosen=\"%s\" granted=%s given=%s", chosen ? chosen : "all", granted,
        text);
    give(text);
    return true;
}

void visible_end(void)
{
    char **slot = state.replaced ? find_text(state.given) : NULL;
    if (slot)
        replace(slot, state.replaced);
    else if (state.is_added) /* else another thread chose meanwhile, and its choice stays */
        unsetenv(VARIABLE);
    state.replaced = NULL;
    state.is_added = false;
    pthread_mutex_unlock(&state.mutex);
    is_inside = false;
}
