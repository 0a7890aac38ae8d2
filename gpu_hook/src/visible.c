#include "visible.h"

#include "log.h"
#include "settings.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VARIABLE "CUDA_VISIBLE_DEVICES"
#define LIST_BYTES 4096 /* 64 devices with UUIDs of 40 characters, and more */

static struct {
    pthread_mutex_t mutex; /* held from begin to end: two threads may both come to begin CUDA */
    char *chosen;          /* the user's value while ours stands there; NULL: there was none */
    char *given;           /* ours; NULL: the user's stands there */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The driver that begins itself again finds its choice made. */
static __thread bool is_inside __attribute__((tls_model("initial-exec")));

struct entry {
    const char *text;
    size_t length;
};

/* The entry at the cursor without the spaces around it; moves the cursor to the next, or to NULL. */
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

/* A device of the grant by its place, or by a beginning of its UUID that fits no other. */
static bool find_granted(const char *granted, struct entry wanted, struct entry *found)
{
    long left = is_index(wanted) ? strtol(wanted.text, NULL, 10) : -1;
    bool is_known = false;
    for (const char *cursor = granted; cursor;) {
        struct entry one = take_entry(&cursor);
        bool fits = left >= 0 ? left-- == 0
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

bool visible_begin(void)
{
    const char *granted = settings()->visible_devices;
    if (!settings()->is_on || !granted || is_inside)
        return false;
    is_inside = true;
    pthread_mutex_lock(&state.mutex);
    char text[LIST_BYTES];
    const char *chosen = getenv(VARIABLE);
    visible_translate(granted, chosen, text, sizeof text);
    if (chosen && strcmp(chosen, text) == 0)
        return true;
    state.chosen = chosen ? strdup(chosen) : NULL;
    state.given = strdup(text);
    setenv(VARIABLE, text, 1);
    LOG("event=visible_devices chosen=\"%s\" granted=%s given=%s", chosen ? chosen : "all", granted, text);
    return true;
}

void visible_end(void)
{
    const char *present = getenv(VARIABLE);
    /* What another thread chose meanwhile stays. */
    bool is_ours = state.given && present && strcmp(present, state.given) == 0;
    if (is_ours && state.chosen)
        setenv(VARIABLE, state.chosen, 1);
    else if (is_ours)
        unsetenv(VARIABLE);
    free(state.chosen);
    free(state.given);
    state.chosen = state.given = NULL;
    pthread_mutex_unlock(&state.mutex);
    is_inside = false;
}
