/* An open-addressing set of live handles under one mutex. */
#include "driver/handles.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct entry {
    const void *object; /* NULL: never used */
    int kind;           /* 0: removed */
};

static struct {
    pthread_mutex_t mutex; /* guards all below */
    struct entry *entries;
    size_t size, taken; /* taken counts removed entries too */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct entry *look_up(struct entry *entries, size_t size, const void *object)
{
    size_t at = (size_t)(((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15ull >> 20) & (size - 1);
    while (entries[at].object && entries[at].object != object)
        at = (at + 1) & (size - 1);
    return &entries[at];
}

static int grow(void)
{
    size_t live = 0;
    for (size_t i = 0; i < table.size; i++)
        live += table.entries[i].kind != 0;
    size_t size = 64;
    while (size < live * 4)
        size *= 2;
    struct entry *entries = calloc(size, sizeof *entries);
    if (entries == NULL)
        return -1;
    for (size_t i = 0; i < table.size; i++)
        if (table.entries[i].kind)
            *look_up(entries, size, table.entries[i].object) = table.entries[i];
    free(table.entries);
    table.entries = entries;
    table.size = size;
    table.taken = live;
    return 0;
}

int handles_add(enum handle_kind kind, const void *object)
{
    pthread_mutex_lock(&table.mutex);
    int failed = (table.taken + 1) * 2 > table.size ? grow() : 0;
    if (!failed) {
        struct entry *entry = look_up(table.entries, table.size, object);
        table.taken += entry->object == NULL;
        *entry = (struct entry){object, kind};
    }
    pthread_mutex_unlock(&table.mutex);
    return failed;
}

int handles_has(enum handle_kind kind, const void *object)
{
    pthread_mutex_lock(&table.mutex);
    int found = object && table.size && look_up(table.entries, table.size, object)->kind == (int)kind;
    pthread_mutex_unlock(&table.mutex);
    return found;
}

int handles_remove(enum handle_kind kind, const void *object)
{
    pthread_mutex_lock(&table.mutex);
    struct entry *entry = object && table.size ? look_up(table.entries, table.size, object) : NULL;
    int found = entry && entry->kind == (int)kind;
    if (found)
        entry->kind = 0;
    pthread_mutex_unlock(&table.mutex);
    return found;
}
