#include "contexts/context_list.h"

#include "accounting/devices.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static struct {
    struct live_context *list;
    size_t count, capacity;
    bool lacks_some;
} state;

void context_list_remove(CUcontext context)
{
    for (size_t i = 0; i < state.count; i++)
        if (state.list[i].context == context) {
            state.list[i] = state.list[--state.count];
            return;
        }
}

void context_list_add(CUcontext context, CUdevice device)
{
    /* left by a context that ended without a call that the hook sees */
    context_list_remove(context);
    devices_use(device);
    if (state.count == state.capacity) {
        size_t capacity = state.capacity ? 2 * state.capacity : 8;
        struct live_context *larger = realloc(state.list, capacity * sizeof *larger);
        if (!larger) {
            state.lacks_some = true;
            LOG("event=no_memory_for_record context=%p", (void *)context);
            return;
        }
        state.list = larger;
        state.capacity = capacity;
    }
    state.list[state.count++] = (struct live_context){context, device, 0};
}

static struct live_context *find(CUcontext context)
{
    for (size_t i = 0; i < state.count; i++)
        if (state.list[i].context == context)
            return &state.list[i];
    return NULL;
}

void context_list_attach(CUcontext context)
{
    struct live_context *found = find(context);
    if (found)
        found->uses++;
}

bool context_list_detach(CUcontext context)
{
    struct live_context *found = find(context);
    if (!found)
        return false;
    return found->uses-- == 0;
}

size_t context_list_read(struct live_context *list, size_t room)
{
    size_t count = state.count < room ? state.count : room;
    if (count)
        memcpy(list, state.list, count * sizeof *list);
    return count;
}

size_t context_list_count(void)
{
    return state.count;
}

bool context_list_is_whole(void)
{
    return !state.lacks_some;
}

void context_list_reset(void)
{
    state.count = 0; /* the parent's, whose memory is not ours to free */
    state.capacity = 0;
    state.list = NULL;
    state.lacks_some = false;
}
